# torch_ocl_compile/decompositions/forms.py: @form: what to trace in place of an eager op.
"""A form takes the op's arguments in the order of its schema and may write into them. eager/forms.py looks forms up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FORMS: dict[str, Callable[..., Any]] = {}  # by the overload's name, "aten.normal_.default"


def form(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the function the form of these overloads."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FORMS[name] = function
        return function

    return register
