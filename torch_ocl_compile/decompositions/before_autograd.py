# torch_ocl_compile/decompositions/before_autograd.py: decompositions that are applied before autograd traces the gradient.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._C import DispatchKey
from torch._ops import OpOverload


def decompose_before_autograd(
    table: dict[Any, Callable[..., Any]], target: OpOverload, function: Callable[..., Any]
) -> None:
    """Adds a decomposition to the table. It also replaces PyTorch's own decomposition where that is applied before autograd
    traces the gradient.
    """
    table[target] = function
    target.py_kernels.pop(DispatchKey.Autograd, None)
    target.py_impl(DispatchKey.Autograd)(function)
    target._dispatch_cache.clear()
