# torch_ocl_compile/compile/debug.py: what was compiled: records, dumps, explain().
"""Logs go through `logging.getLogger(__name__)` of each file: TORCH_LOGS="+torch_ocl_compile" shows them all,
"+torch_ocl_compile.lowering" one part. TORCH_OCL_DUMP=dir writes every graph as text."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile import config
from torch_ocl_compile.lowering.fallback import FALLBACKS

log = logging.getLogger(__name__)
KEPT = 64  # records of compiled graphs


@dataclass
class Record:
    """One compiled graph."""

    label: str
    fx_nodes: int
    kernels: int
    calls: int
    text: Callable[[], str]  # the ir.Graph
    plan: Any


_records: deque[Record] = deque(maxlen=KEPT)
_counts = {"compiled": 0, "loaded": 0}


def next_label(kind: str, *, loaded: bool = False) -> str:
    """forward_0, backward_1, ...: names dumps and plans. `loaded`: the graph comes from the cache."""
    number = sum(_counts.values())
    _counts["loaded" if loaded else "compiled"] += 1
    return f"{kind}_{number}"


def compiled_graphs() -> int:
    """How many graphs have come to the compiler in this process."""
    return _counts["compiled"]


def loaded_graphs() -> int:
    """How many graphs have come from the cache instead."""
    return _counts["loaded"]


def remember(label: str, fx_nodes: int, lowered: Any, plan: Any) -> None:
    graph = lowered.graph
    record = Record(label, fx_nodes, plan.launch_count, len(lowered.calls), graph.str, plan)
    _records.append(record)
    log.debug("%s: %d fx nodes, %d launches, %d eager calls", label, record.fx_nodes, record.kernels, record.calls)


def forget() -> None:
    _records.clear()


def records() -> list[Record]:
    """The latest compiled graphs, oldest first."""
    return list(_records)


def dump(label: str, name: str, text: Callable[[], str]) -> None:
    """Writes `text` to <dump>/<label>.<name> if a dump folder is set."""
    folder = str(config.get("dump"))
    if not folder:
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, f"{label}.{name}"), "w", encoding="utf-8", opener=_open_for_user_alone) as file:
        file.write(text())


def _open_for_user_alone(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def fallback_counts() -> dict[str, int]:
    """Op and reason -> how many nodes ran eagerly."""
    return {f"{op}: {reason}": count for (op, reason), count in FALLBACKS.items()}


def explain(model: Callable[..., Any], *inputs: Any, **kwargs: Any) -> str:
    """Compiles and runs the model once; returns its graphs, kernels and fallbacks as text."""
    torch._dynamo.reset()
    before = fallback_counts()
    torch.compile(model, backend="ocl")(*inputs, **kwargs)
    lines = []
    for record in records():
        lines.append(
            f"{record.label}: {record.fx_nodes} aten nodes, {record.kernels} launches, {record.calls} eager calls"
        )
        for kernel in record.plan.describe():
            lines.append(f"  {kernel['name']}: {kernel['ops']} ops, {kernel['origin']}")
    for name, count in fallback_counts().items():
        if count > before.get(name, 0):
            lines.append(f"eager: {name}")
    return "\n".join(lines)
