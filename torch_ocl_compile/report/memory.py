# torch_ocl_compile/report/memory.py: computes the memory of a compiled graph from launch to launch, and its largest
# tensors at the peak.
"""Arguments and results of a graph live through all of its launches. Intermediate results share the arena. Each lives
from the launch that writes it to the last launch that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_ocl_compile.report.kernels import short, tensor_text

LARGEST = 12


@dataclass(frozen=True)
class TensorAtPeak:
    """A tensor in memory at the peak."""

    tensor: str
    bytes: int
    what: str  # "parameter", "argument", "result", "intermediate", "packed parameter", "scratch".
    op: str  # The op that wrote it, "" for arguments.
    line: str
    first: int  # The first launch of its life; `last` is the last one.
    last: int


@dataclass(frozen=True)
class Memory:
    parameters: int
    arguments: int
    results: int
    kept: int  # Bytes of packed parameters.
    arena: int  # The block that holds all intermediate results.
    live: list[int]  # Bytes of intermediate results at each launch.
    peak_at: int  # The launch where `live` is largest.
    tensors: list[TensorAtPeak]  # The largest first.

    @property
    def largest(self) -> list[TensorAtPeak]:
        return self.tensors[:LARGEST]

    @property
    def peak(self) -> int:
        return self.parameters + self.arguments + self.results + self.kept + self.arena


def memory_of(report: Mapping[str, Any]) -> Memory:
    """Returns the memory of a graph. `report` is the result of Plan.report()."""
    buffers, groups = report["buffers"], len(report["groups"])
    live, spans = [0] * max(groups, 1), []
    for interval in report["memory"]["intervals"]:
        size = interval["bytes"] or 0
        buffer = None if interval["buffer"] is None else buffers[interval["buffer"]]
        spans.append((interval, buffer, size))
        if not interval["kept"]:
            for position in range(interval["first"], min(interval["last"], groups - 1) + 1):
                live[position] += size
    peak_at = max(range(len(live)), key=live.__getitem__)
    held = [
        TensorAtPeak(tensor_text(buffer) if buffer else "workspace", size,
             "packed parameter" if interval["kept"] else "intermediate" if buffer else "scratch",
             short(buffer["op"]) if buffer else "", buffer["source"] if buffer else "", interval["first"], interval["last"])
        for interval, buffer, size in spans
        if interval["kept"] or interval["first"] <= peak_at <= interval["last"]
    ]  # fmt: skip
    totals = {"parameter": 0, "argument": 0, "result": 0}
    for buffer in buffers:
        if buffer["place"] not in ("input", "result"):
            continue
        what = "result" if buffer["place"] == "result" else "parameter" if buffer["parameter"] else "argument"
        totals[what] += buffer["bytes"] or 0
        held.append(
            TensorAtPeak(
                tensor_text(buffer), buffer["bytes"] or 0, what, short(buffer["op"]), buffer["source"], 0, groups - 1
            )
        )
    return Memory(
        parameters=totals["parameter"],
        arguments=totals["argument"],
        results=totals["result"],
        kept=report["memory"]["kept_bytes"],
        arena=report["memory"]["arena_bytes"],
        live=live,
        peak_at=peak_at,
        tensors=sorted(held, key=lambda h: -h.bytes),
    )
