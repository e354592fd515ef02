# torch_ocl_compile/decompositions/forms.py: @form registers the function that is traced in place of an eager op.
"""Such a function is called a form. It takes the op's arguments in the order of its schema and may write into them.

eager/forms.py looks forms up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Forms by the name of the overload, for example "aten.normal_.default".
FORMS: dict[str, Callable[..., Any]] = {}


def form(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the function as the form of these overloads."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FORMS[name] = function
        return function

    return register
