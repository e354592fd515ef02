# torch_ocl_compile/report/findings.py: the contents of a report, as data.
from __future__ import annotations

from dataclasses import dataclass, field

from torch_ocl_compile.device.record import LaunchRecord
from torch_ocl_compile.report.breaks import Break
from torch_ocl_compile.report.kernels import Kernel
from torch_ocl_compile.report.memory import Memory
from torch_ocl_compile.report.roofline import Roofline


@dataclass
class Graph:
    """One compiled graph."""

    label: str
    aten_nodes: int
    eager_calls: int
    device: int
    kernels: list[Kernel]
    memory: Memory
    decisions: list[str]  # What the scheduler decided, with reasons.
    passes: list[tuple[str, float]]  # The scheduler's passes, in milliseconds.

    @property
    def time_us(self) -> float | None:
        """Returns the time of one call; it includes kernels whose result is kept between calls. None if nothing was
        measured.
        """
        times = [k.time_us for k in self.kernels if k.time_us is not None]
        return sum(times) if times else None

    def __str__(self) -> str:
        return (
            f"{self.label}: {self.aten_nodes} aten nodes, {len(self.kernels)} launches, {self.eager_calls} eager calls"
        )


@dataclass(frozen=True)
class Cut:
    """A node at which a graph was cut into several plans."""

    graph: str
    op: str
    place: str  # "model.py:9"; "" if unknown.
    reason: str
    eager: bool  # Whether PyTorch runs the op. False: its graphs are compiled, or it computes nothing.

    def __str__(self) -> str:
        return f"{self.graph} is cut at {self.op}{f' ({self.place})' if self.place else ''}: {self.reason}"


@dataclass(frozen=True)
class Choice:
    """An op of the model that can be computed in several ways, and the way that was chosen."""

    op: str
    place: str  # As in Cut.
    way: str

    def __str__(self) -> str:
        return f"{self.op}{f' ({self.place})' if self.place else ''} becomes {self.way}"


@dataclass
class Findings:
    """What was compiled, how it was fused, and how it runs."""

    title: str
    graphs: list[Graph] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    # Op and reason -> how many nodes of graphs run on the CPU.
    eager_in_graphs: dict[str, int] = field(default_factory=dict)
    eager_outside: dict[str, int] = field(default_factory=dict)  # Op -> calls of eager ops that ran on the CPU.
    phases: dict[str, float] = field(default_factory=dict)  # Phases of compilation, in seconds.
    roofline: Roofline | None = None  # The device's limits. None if nothing was measured.
    model_lines: dict[str, str] = field(default_factory=dict)  # "model.py:9" -> the line.
    outside: list[LaunchRecord] = field(default_factory=list)  # Launches of eager ops and copies, if measured.
