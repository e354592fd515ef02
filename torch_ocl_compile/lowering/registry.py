# torch_ocl_compile/lowering/registry.py: @lower and its lookup. One row per aten overload.
"""The table from overload to lowering. A lowering takes the `Context` and the node's arguments, tensors as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch_ocl_compile.fx.overloads import overload

Lowering = Callable[..., Any]
F = TypeVar("F", bound=Lowering)

LOWERINGS: dict[Any, Lowering] = {}


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
