# torch_ocl_compile/report/phases.py: how long each phase of compilation took.
"""The one place where the report gets compile times from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch._dynamo import utils


def _torch_seconds() -> dict[str, float]:
    return dict(utils.calculate_time_spent())


@dataclass
class Phases:
    """The compile times since this was made."""

    before: dict[str, float] = field(default_factory=_torch_seconds)

    def seconds(self, plans: Iterable[Any]) -> dict[str, float]:
        """Phase -> seconds. `plans`: those that were made in this time."""
        after = _torch_seconds()
        spent = {name: time - self.before.get(name, 0.0) for name, time in after.items()}
        own = [plan.timings() for plan in plans]
        parts = {
            "schedule": sum(t["schedule_seconds"] for t in own),
            "generate kernels": sum(t["codegen_seconds"] for t in own),
            "build kernels": sum(t["build_seconds"] for t in own),
        }
        backend = spent.get("backend_compile", 0.0)
        capture = max(spent.get("entire_frame_compile", 0.0) - backend, 0.0)
        # Some backward graphs are compiled when they are first needed.
        late = spent.get("entire_backward_compile", 0.0)
        traced = max(backend + late - sum(parts.values()), 0.0)
        return {"capture (Dynamo)": capture, "trace and lower (AOTAutograd)": traced, **parts}


def passes_of(plan: Any) -> list[tuple[str, float]]:
    """The scheduler's passes over a graph: (name, milliseconds)."""
    return [(name, time) for name, time, _ in plan.timings()["passes"]]
