# benchmarks/harness/memory.py: the peak memory of networks on several sides, and what it consists of.
"""memory_peak.py measures it in the process of each side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.harness.models import NetworkSettings
from benchmarks.harness.process import runs_on_cpu
from benchmarks.harness.sides import is_ours
from torch_ocl_compile.errors import ToolError


def measurable(side: str, ocl_device: str) -> bool:
    """True if the memory of the side is counted. PyTorch's allocator for the CPU counts nothing."""
    return is_ours(side) or not runs_on_cpu(side, ocl_device)


def measure(
    models: list[str],
    modes: list[str],
    precisions: list[str],
    settings: NetworkSettings,
    say: Callable[[str], None],
    wanted: Callable[..., bool] = lambda *case: True,
) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of each network, mode and precision: a row for each side. `say` is called with what is being done,
    `wanted` tells of a (precision, network, mode) whether to measure it."""
    for side in settings.sides:
        if not measurable(side, settings.ocl_device):
            raise ToolError(
                f"the side {side} runs on the CPU, where PyTorch does not count memory.\n"
                "  do: leave it out, or measure it where torch has CUDA"
            )
    for precision, name, mode in itertools.product(precisions, models, modes):
        if wanted(precision, name, mode):
            rows = []
            for side in settings.sides:
                say(f"{name}, {mode}, {precision}: {side}")
                rows.append(measure_side(side, name, mode, replace(settings, precision=precision)))
            yield rows


def measure_side(side: str, name: str, mode: str, settings: NetworkSettings) -> dict[str, Any]:
    with settings.process(side, name, mode) as process:
        way = process.ask("choose")
    # Another process, because the first one has held other networks.
    with settings.process(side, name, mode, way=way) as process:
        found = process.ask("memory")
        facts = process.ask("facts")
    return {"model": name, "mode": mode, "precision": settings.precision, "batch": settings.batch, "side": side,
            "device": facts["device"], "settings": facts["settings"], **found}  # fmt: skip
