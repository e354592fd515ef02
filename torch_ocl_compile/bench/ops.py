# torch_ocl_compile/bench/ops.py: times single operations on several sides, in one interleaved run.
"""Every side is a process of its own. A round begins with a pause and one call that is not timed. Then it times calls
and one wait for the device. An operation of less than some milliseconds is timed as several independent operations
per call, so that the time is not that of the host.

The weight of a linear layer ("nt") is a parameter, as in a model, so packing it once is not part of the time. Other
operands are packed in every call, if the kernel packs. A side runs convolutions in the faster of its memory formats
(sides.py). Without `flops`, the peak of a CPU device is measured once in every round.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from torch_ocl_compile.bench import cases
from torch_ocl_compile.bench.process import SideProcess
from torch_ocl_compile.bench.results import NAN, commit
from torch_ocl_compile.bench.sides import is_ours
from torch_ocl_compile.errors import ToolError


@dataclass(frozen=True)
class OpSettings:
    """How operations are timed. `groups`, `parts`: which cases, as in cases.chosen. `flops`, `bandwidth`: peaks of the
    device per second, NaN if unknown."""

    sides: list[str]
    groups: list[str]
    parts: list[str]
    batch: int = 64
    rounds: int = 5
    calls: int = 20
    threads: int = 1
    ocl_device: str = "ocl:0"
    tf32: bool = False
    errors: bool = True
    flops: float = NAN
    bandwidth: float = NAN
    verbose: bool = False


def measure(settings: OpSettings) -> Iterator[dict[str, Any]]:
    """Yields a row for each case and side, as soon as the case is measured."""
    chosen = cases.chosen(settings.batch, settings.groups, settings.parts)
    if not chosen:
        groups = ", ".join(sorted({case.group for case in cases.all_cases(settings.batch)}))
        raise ToolError(f"no operation matches.\n  do: choose of these groups: {groups}")
    names = ("calls", "threads", "ocl_device", "batch", "groups", "parts", "tf32")
    given = {name: getattr(settings, name) for name in names}
    with contextlib.ExitStack() as stack:
        sides = {
            side: stack.enter_context(SideProcess("op_side.py", given | {"side": side}, verbose=settings.verbose))
            for side in settings.sides
        }
        for index, case in enumerate(chosen):
            yield from _measure_case(index, case, sides, settings)


def _measure_case(
    index: int, case: cases.Case, sides: dict[str, SideProcess], settings: OpSettings
) -> Iterator[dict[str, Any]]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side.ask(f"i {index}")
    peaks: list[float] = []
    ours = [name for name in sides if is_ours(name)]
    for _ in range(settings.rounds):
        if settings.flops != settings.flops and ours:
            peaks.append(sides[ours[0]].ask("p"))
        for name, side in sides.items():
            times[name].append(side.ask("t"))
    flops = statistics.median(peaks) if peaks else settings.flops
    first = statistics.median(times[settings.sides[0]])
    for name, side in sides.items():
        seconds = statistics.median(times[name])
        least = max(v for v in (case.flops / flops, case.bytes / settings.bandwidth, 0.0) if v == v)
        yield {"group": case.group, "case": case.name, "side": name, "ms": seconds * 1e3, "ratio": first / seconds,
               "tflops": case.flops / seconds / 1e12, "gbytes": case.bytes / seconds / 1e9, "peak_tflops": flops / 1e12,
               "roofline": least / seconds, "error": side.ask("e") if settings.errors else NAN,
               "settings": side.ask("s")}  # fmt: skip


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns, for each group and side, the geometric mean of the ratios, and the least and the largest share of the
    roofline."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["group"], row["side"]), []).append(row)
    return [
        {
            "group": group,
            "side": side,
            "ratio": statistics.geometric_mean(row["ratio"] for row in members),
            "least_roofline": min(row["roofline"] for row in members),
            "largest_roofline": max(row["roofline"] for row in members),
        }
        for (group, side), members in groups.items()
    ]


def settings_of(settings: OpSettings) -> dict[str, Any]:
    """Returns how the rows were measured, for a result file. Call it before the measurement: it has the commit."""
    return asdict(settings) | {"torch": torch.__version__, "commit": commit()}
