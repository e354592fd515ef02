# torch_ocl_compile/lowering/registry.py: @lower and its lookup. One row per aten overload.
"""The table from overload to lowering. A lowering takes the `Context` and the node's arguments, tensors as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._ops import OpOverload, OpOverloadPacket

Lowering = Callable[..., Any]
F = TypeVar("F", bound=Lowering)

LOWERINGS: dict[Any, Lowering] = {}


def overload(name: str) -> OpOverload | None:
    """The overload called `name` ("aten.add.Tensor"), None where this torch has no such op."""
    namespace, packet, which = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    if not isinstance(found, OpOverloadPacket):
        return None
    result = getattr(found, which, None)
    return result if isinstance(result, OpOverload) else None


def add_row(target: Any, lowering: Lowering) -> None:
    """Adds a row. Raises ValueError on a second row for the same overload."""
    if target in LOWERINGS:
        raise ValueError(f"second lowering for {target}")
    LOWERINGS[target] = lowering


def lower(*targets: Any) -> Callable[[F], F]:
    """Makes the function the lowering of these overloads (objects, or names for ops that not every torch has)."""

    def register(function: F) -> F:
        for target in targets:
            found = overload(target) if isinstance(target, str) else target
            if found is not None:
                add_row(found, function)
        return function

    return register


def find(target: Any) -> Lowering | None:
    """The lowering of an overload; None means fallback."""
    return LOWERINGS.get(target)
