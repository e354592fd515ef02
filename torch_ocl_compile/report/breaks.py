# torch_ocl_compile/report/breaks.py: finds where Dynamo ended a graph before the function ended, and why.
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._dynamo import utils


@dataclass(frozen=True)
class Break:
    """A graph break."""

    reason: str  # One sentence.
    details: str  # All that Dynamo says.
    place: str  # "model.py:9".
    code: str  # The line there.


@dataclass
class Breaks:
    """Collects the graph breaks since it was made."""

    seen: int = field(default_factory=lambda: len(utils.graph_break_reasons))

    def found(self) -> list[Break]:
        reasons = utils.graph_break_reasons
        new = (
            reasons[self.seen :] if len(reasons) >= self.seen else list(reasons)
        )  # The list was emptied by torch._dynamo.reset().
        return list(dict.fromkeys(_break(reason) for reason in new if not _is_of_optimizer(reason)))


def _is_of_optimizer(reason: Any) -> bool:
    """True for the break that torch's optimizers make themselves, before each step."""
    frame = reason.user_stack[-1] if reason.user_stack else None
    return frame is not None and frame.filename.startswith(str(Path(torch.optim.__file__).parent))


def _break(reason: Any) -> Break:
    lines = [line.strip() for line in str(reason.reason).strip().splitlines() if line.strip()]
    frame = reason.user_stack[-1] if reason.user_stack else None
    place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" if frame else ""
    return Break(_sentence(lines), "\n".join(lines), place, (frame.line or "").strip() if frame else "")


def _sentence(lines: Iterable[str]) -> str:
    """Returns Dynamo's short name of the break, and Dynamo's explanation if there is one."""
    listed = list(lines)
    if listed == ["step_unsupported"]:  # Dynamo's word, without an explanation.
        return "Dynamo cannot capture this line"
    explanation = next((line.partition(":")[2].strip() for line in listed if line.startswith("Explanation:")), "")
    return ": ".join(part for part in (listed[0] if listed else "unknown", explanation) if part)
