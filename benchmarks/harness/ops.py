# benchmarks/harness/ops.py: times single operations on several sides, in one interleaved run.
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import cases
from benchmarks.harness.process import SideProcess
from benchmarks.harness.results import NAN, add_best
from benchmarks.harness.sides import is_ours
from torch_ocl_compile.errors import ToolError


@dataclass(frozen=True)
class OpSettings:
    """How operations are timed. `groups`, `parts`: which cases, as in cases.chosen. `precisions`: full fp32 (highest), fp32 with
    TF32 products (high), or inputs of bf16 or fp16. `flops`, `bandwidth`: peaks of the device per second, NaN if unknown."""

    sides: list[str]
    groups: list[str]
    parts: list[str]
    batch: int = 64
    rounds: int = 5
    calls: int = 20
    threads: int = 1
    ocl_device: str = "ocl:0"
    precisions: tuple[str, ...] = ("highest",)
    errors: bool = True
    flops: float = NAN
    bandwidth: float = NAN
    verbose: bool = False


def measure(settings: OpSettings, wanted: Callable[..., bool] = lambda *case: True) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of each case as soon as it is measured: a row for each side that can run it. `wanted` tells of a
    (precision, group, case) whether to measure it."""
    chosen = cases.chosen(settings.batch, settings.groups, settings.parts)
    if not chosen:
        groups = ", ".join(sorted({case.group for case in cases.all_cases(settings.batch)}))
        raise ToolError(f"no operation matches.\n  do: choose of these groups: {groups}")
    names = ("calls", "threads", "ocl_device", "batch", "groups", "parts")
    given = {name: getattr(settings, name) for name in names}
    with contextlib.ExitStack() as stack:
        sides = {
            side: stack.enter_context(SideProcess("op_side.py", given | {"side": side}, verbose=settings.verbose))
            for side in settings.sides
        }
        for precision in settings.precisions:
            for index, case in enumerate(chosen):
                if wanted(precision, case.group, case.name):
                    yield _measure_case(index, precision, case, sides, settings)


def _measure_case(
    index: int, precision: str, case: cases.Case, sides: dict[str, SideProcess], settings: OpSettings
) -> list[dict[str, Any]]:
    # A side without a kernel for this case answers with null.
    able = {name: side for name, side in sides.items() if side.ask(f"i {index} {precision}") is not None}
    times: dict[str, list[float]] = {name: [] for name in able}
    peaks: list[float] = []
    ours = [name for name in able if is_ours(name)]
    for _ in range(settings.rounds):
        if settings.flops != settings.flops and ours:
            peaks.append(sides[ours[0]].ask("p"))
        for name, side in able.items():
            times[name].append(side.ask("t"))
    flops = statistics.median(peaks) if peaks else settings.flops
    seconds_of = {name: statistics.median(found) for name, found in times.items()}
    moved = case.bytes * (0.5 if precision in ("bf16", "fp16") else 1.0)
    rows = []
    for name, seconds in seconds_of.items():
        least = max(v for v in (case.flops / flops, moved / settings.bandwidth, 0.0) if v == v)
        rows.append(
            {"group": case.group, "case": case.name, "precision": precision, "side": name, "ms": seconds * 1e3,
             "ratio": seconds_of.get(settings.sides[0], NAN) / seconds, "rounds_ms": [t * 1e3 for t in times[name]],
             "tflops": case.flops / seconds / 1e12, "gbytes": moved / seconds / 1e9, "peak_tflops": flops / 1e12,
             "roofline": least / seconds, "error": sides[name].ask("e") if settings.errors else NAN,
             "settings": sides[name].ask("s")})  # fmt: skip
    add_best(rows)
    return rows


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns, for each precision, group and side, the geometric means of both ratios, and the least and the largest share
    of the roofline."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["precision"], row["group"], row["side"]), []).append(row)
    return [
        {
            "precision": precision,
            "group": group,
            "side": side,
            "ratio": _known_mean(row["ratio"] for row in members),
            "against_best": _known_mean(row["against_best"] for row in members),
            "least_roofline": min(row["roofline"] for row in members),
            "largest_roofline": max(row["roofline"] for row in members),
        }
        for (precision, group, side), members in groups.items()
    ]


def _known_mean(values: Iterable[float]) -> float:
    """The geometric mean of the values that are not NaN. NaN if there is none."""
    known = [value for value in values if value == value]
    return statistics.geometric_mean(known) if known else NAN
