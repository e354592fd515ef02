# torch_ocl_compile/report/phases.py: measures how long each phase of compilation took.
"""The backend's phases come from torch.ocl.compile_times(). Time that torch.compile spends before them is Dynamo's."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from torch._dynamo import utils

from torch_ocl_compile.device import torch_ocl


def _dynamo_seconds() -> float:
    """Returns Dynamo's seconds in this process so far, without the seconds of backends."""
    spent = utils.calculate_time_spent()
    return spent.get("entire_frame_compile", 0.0) - spent.get("backend_compile", 0.0)


def _known_graphs() -> set[str]:
    return {times.graph for times in torch_ocl.compile_times()}


@dataclass
class Phases:
    """Collects the compile times since it was made."""

    dynamo_before: float = field(default_factory=_dynamo_seconds)
    known: set[str] = field(default_factory=_known_graphs)

    def seconds(self) -> dict[str, float]:
        """Returns phase -> seconds, without phases that took no time."""
        sums: dict[str, float] = defaultdict(float, Dynamo=max(_dynamo_seconds() - self.dynamo_before, 0.0))
        for times in torch_ocl.compile_times():
            if times.graph not in self.known:
                for phase, seconds in times.phases().items():
                    sums[phase.replace("_", " ")] += seconds
        return {phase: seconds for phase, seconds in sums.items() if seconds > 0}


def passes_of(plan: Any) -> list[tuple[str, float]]:
    """Returns the scheduler's passes over a graph: (name, milliseconds)."""
    return [(name, time) for name, time, _ in plan.timings()["passes"]]
