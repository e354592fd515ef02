# torch_ocl_compile/report/kernels.py: the kernels of a compiled graph: what each computes, what was fused, why no more,
# its time.
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torch_ocl_compile.device.record import LaunchRecord

ALONE = "no other kernel of this graph computes what it reads, or reads what it computes"
_RELATIONS = {"producer": "reads the result of", "consumer": "computes an input of", "sibling": "reads an input of"}


@dataclass(frozen=True)
class Apart:
    """A neighbour of a kernel, and why the two were not fused."""

    relation: str  # What the neighbour is for the kernel: "producer", "consumer" or "sibling".
    group: int  # The neighbour's position in the graph.
    op: str  # One of the neighbour's ops.
    tensor: str  # The tensor that both kernels touch, such as "f32[8, 64]".
    bytes: int | None
    reason: str

    def __str__(self) -> str:
        return f"{_RELATIONS[self.relation]} #{self.group} ({short(self.op)}), {self.tensor}: {self.reason}"


@dataclass
class Kernel:
    """One launch of a graph. Sizes are those of its last call, times the median of the calls that were measured."""

    graph: str
    position: int
    name: str
    kind: str
    variant: str  # The row and variant of a hand-written kernel, "" for others.
    origin: str
    ops: list[str]  # Each aten op once, with how often it occurs: "relu x2".
    lines: list[str]  # Lines of the model: "model.py:9".
    nodes: int
    fused: list[str]
    apart: list[Apart]
    # Hand-written kernels that come first but refused: "gemm_warpgroup: refused, K = 7 is below 16".
    refused: list[str]
    bytes: int | None
    flops: int | None
    precision: str  # Precision of its arithmetic: "f32", "f16", "bf16".
    work_groups: list[int | None]
    local: list[int]
    reads: list[str]
    writes: list[str]
    text: str
    kept: bool  # It runs only when a parameter has changed.
    times_us: list[float] = field(default_factory=list)

    @property
    def time_us(self) -> float | None:
        return median(self.times_us) if self.times_us else None

    @property
    def why_no_more(self) -> list[str]:
        """Returns the reasons why no more was fused. The list is never empty."""
        return [str(other) for other in self.apart] or [ALONE]


def short(op: str) -> str:
    """Returns "relu" for "aten.relu.default"."""
    return op.removeprefix("aten.").removesuffix(".default")


def tensor_text(buffer: Mapping[str, Any]) -> str:
    return f"{buffer['dtype']}[{', '.join('?' if size is None else str(size) for size in buffer['sizes'])}]"


def kernels_of(label: str, report: Mapping[str, Any]) -> list[Kernel]:
    """Returns the kernels of the graph `label`. `report` is the result of Plan.report()."""
    return [
        _kernel(label, position, group, report["buffers"])
        for position, group in enumerate(report["groups"])
        if group["launch"] >= 0
    ]


def _kernel(label: str, position: int, group: Mapping[str, Any], buffers: list[dict[str, Any]]) -> Kernel:
    origins = [*group["nodes"], *group["inlined"]]
    ops = Counter(short(op) for op, _ in origins if op)
    inlined = list(dict.fromkeys(short(op) for op, _ in group["inlined"] if op))
    fused = Counter([*group["fused"], *(f"inlined: {op} is computed where its value is used" for op in inlined)])
    touched = {buffers[b]["dtype"] for b in group["reads"]}
    same = ("name", "kind", "variant", "origin", "refused", "bytes", "flops", "text", "kept")
    return Kernel(
        **{name: group[name] for name in same},
        graph=label,
        position=position,
        ops=[op if count == 1 else f"{op} x{count}" for op, count in ops.items()],
        lines=list(dict.fromkeys(line for _, line in origins if line)),
        nodes=len(group["nodes"]),
        fused=[reason if count == 1 else f"{reason} ({count} times)" for reason, count in fused.items()],
        apart=[
            Apart(other["relation"], other["group"], other["op"], tensor_text(buffers[other["buffer"]]),
                  buffers[other["buffer"]]["bytes"], other["reason"])
            for other in group["apart"]
        ],
        precision=next((t for t in ("bf16", "f16") if group["variant"] and t in touched), "f32"),
        work_groups=list(group["work_groups"]),
        local=list(group["local"]),
        reads=[tensor_text(buffers[b]) for b in group["reads"]],
        writes=[tensor_text(buffers[b]) for b in group["writes"]],
    )  # fmt: skip


def add_times(kernels: Iterable[Kernel], records: Iterable[LaunchRecord]) -> list[LaunchRecord]:
    """Gives kernels the times of `records`. Returns the records that belong to no kernel."""
    by_place = {(k.graph, k.position, k.name): k for k in kernels}
    others = []
    for record in records:
        kernel = by_place.get((record.graph, record.group, record.kernel))
        if kernel is None:
            others.append(record)
        elif record.end_ns > record.start_ns:
            kernel.times_us.append(record.time_us)
    return others
