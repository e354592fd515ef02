# torch_ocl_compile/decompositions/registry.py: the table from aten overload to our decomposition: @decompose.
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from torch._C import DispatchKey
from torch._decomp.decompositions import pw_cast_for_opmath
from torch._ops import OpOverload

from torch_ocl_compile.fx.overloads import overload

F = TypeVar("F", bound=Callable[..., Any])

DECOMPOSITIONS: dict[OpOverload, Callable[..., Any]] = {}

# True while a package is made: its plans cannot have the kernels of user_kernel/.
IN_PACKAGE: ContextVar[bool] = ContextVar("in_package", default=False)


@contextmanager
def for_package() -> Iterator[None]:
    token = IN_PACKAGE.set(True)
    try:
        yield
    finally:
        IN_PACKAGE.reset(token)


def decompose(*targets: OpOverload | str, opmath: bool = False, before_autograd: bool = False) -> Callable[[F], F]:
    """Registers the function as the decomposition of these overloads: objects, or names for ops that some versions of torch lack.

    `opmath`: 16-bit types are computed in float32 and rounded once. `before_autograd`: the function also replaces PyTorch's own
    decomposition where that is applied before autograd traces the gradient.
    """

    def register(function: F) -> F:
        for target in targets:
            found = overload(target) if isinstance(target, str) else target
            if found is None:
                continue
            DECOMPOSITIONS[found] = pw_cast_for_opmath(function) if opmath else function
            if before_autograd:
                found.py_kernels.pop(DispatchKey.Autograd, None)
                found.py_impl(DispatchKey.Autograd)(function)
                found._dispatch_cache.clear()
        return function

    return register
