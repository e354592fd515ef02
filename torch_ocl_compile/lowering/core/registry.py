# torch_ocl_compile/lowering/core/registry.py: the table from aten overload to lowering: @lower and find.
"""A lowering takes the `Context` and the node's arguments, with tensors as ir.Values. There is one per overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch_ocl_compile.fx.overloads import overload

Lowering = Callable[..., Any]
F = TypeVar("F", bound=Lowering)

LOWERINGS: dict[Any, Lowering] = {}
# The lowerings of calls with complex numbers: arguments and results may be `Complex` values.
COMPLEX_LOWERINGS: dict[Any, Lowering] = {}


def add_row(target: Any, lowering: Lowering) -> None:
    """Adds a lowering. ValueError if the overload has one already."""
    if target in LOWERINGS:
        raise ValueError(f"second lowering for {target}")
    LOWERINGS[target] = lowering


def lower(*targets: Any) -> Callable[[F], F]:
    """Registers the function as the lowering of these overloads.

    Overloads are objects, or names for ops that some versions of torch lack.
    """

    def register(function: F) -> F:
        for target in targets:
            found = overload(target) if isinstance(target, str) else target
            if found is not None:
                add_row(found, function)
        return function

    return register


def lower_complex(*targets: str) -> Callable[[F], F]:
    """Registers the function as the lowering of these overloads for complex numbers."""

    def register(function: F) -> F:
        for target in targets:
            found = overload(target)
            if found in COMPLEX_LOWERINGS:
                raise ValueError(f"second lowering for {target} of complex numbers")
            if found is not None:
                COMPLEX_LOWERINGS[found] = function
        return function

    return register


def find(target: Any, is_complex: bool = False) -> Lowering | None:
    """Returns the lowering of an overload. None means that the op falls back to eager."""
    return (COMPLEX_LOWERINGS if is_complex else LOWERINGS).get(target)
