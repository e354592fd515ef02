# torch_ocl_compile/user_kernel/registry.py: keeps the ops made of users' kernels.
from __future__ import annotations

from typing import Any, Protocol


class Registered(Protocol):
    """An op made of a user's kernel."""

    name: str

    def texts(self) -> list[str]: ...

    def functions(self) -> list[Any]: ...


KERNELS: dict[str, Registered] = {}  # "mylib::saxpy" -> the op.
BY_OVERLOAD: dict[Any, Registered] = {}  # An overload that compiled graphs call -> the op.


def find(target: Any) -> Any:
    """Returns the op that an overload belongs to, or None."""
    return BY_OVERLOAD.get(target)
