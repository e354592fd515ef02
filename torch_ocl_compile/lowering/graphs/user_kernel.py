# torch_ocl_compile/lowering/graphs/user_kernel.py: lowers an op made of a user's kernel to a Call node that is enqueued
# without Python.
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.graphs.fallback import lower_call
from torch_ocl_compile.user_kernel import (  # noqa: F401  (they register ops)
    ctc,
    draw_gradients,
    draws,
    eig,
    jacobi,
    log_sum,
    lu,
    qr,
    registry,
    triangular,
)
from torch_ocl_compile.user_kernel.kernel import Kernel


@dataclass(frozen=True)
class UserCall:
    """A launch of a user's kernel in a plan. It can be pickled; `bound` makes it callable on a device."""

    op: str
    kernel: str
    text: str
    arguments: list[Any]
    global_size: list[int]
    local_size: list[int] | None
    strides: list[list[int]]  # of the operands, in elements
    result_bytes: list[int]
    copies: list[tuple[int, int]]  # (result, operand) of arguments that the op changes

    def bound(self, device_index: int) -> Any:
        return registry.KERNELS[self.op].launch(  # type: ignore[attr-defined]
            self, device_index, strides=self.strides, result_bytes=self.result_bytes, copies=self.copies
        )


@dataclass(frozen=True)
class OnContiguous:
    """Calls an op made of a user's kernel on copies of operands that a plan keeps in another order than the kernel takes."""

    op: str

    def __call__(self, *args: Any) -> Any:
        kernel: Any = registry.KERNELS[self.op]
        given = zip(kernel.inputs, args, strict=True)
        return kernel.functional(*(a.contiguous() if p.space and p.name not in kernel.strided else a for p, a in given))


def lowering_of(target: Any) -> Callable[..., Any] | None:
    """Returns the lowering of an op made of a user's kernel. None for other ops."""
    kernel = registry.find(target)
    return None if kernel is None else lambda c, *args: lower_user_kernel(c, kernel, args)


def lower_user_kernel(c: Context, kernel: Kernel, args: Sequence[Any]) -> Any:
    """Lowers an op made of a user's kernel. Sizes, numbers and macros that are known now are computed now. If a size is
    symbolic, the op is called from Python at run time.
    """
    node_args = [a.meta.get("val") if isinstance(a, torch.fx.Node) else a for a in c.node.args] if c.node else []
    fakes = [a for a in node_args if isinstance(a, torch.Tensor)]
    results = [t for t in tree_leaves(c.val) if isinstance(t, torch.Tensor)]
    if any(_is_symbolic(a) for a in [*node_args, *results]):
        return lower_call(c, OnContiguous(kernel.name), args, {})
    outputs = len(kernel.outputs)
    tensor_names = [p.name for p in kernel.inputs if p.space]
    changed = [len(fakes) + outputs + i for i in range(len(kernel.changed))]
    prepared = kernel.prepare(node_args, [*fakes, *results], changed)
    call = UserCall(
        op=kernel.name,
        kernel=kernel.signature.kernel,
        text=prepared.text,
        arguments=prepared.arguments,
        global_size=prepared.global_size,
        local_size=prepared.local_size,
        strides=[list(t.stride()) for t in fakes],
        result_bytes=[t.numel() * t.element_size() for t in results],
        copies=[(outputs + i, tensor_names.index(name)) for i, name in enumerate(kernel.changed)],
    )
    c.calls.append(call)  # type: ignore[arg-type]
    operands = [a for a in args if isinstance(a, ir.Value)]
    shapes = [(ir_dtype(t.dtype), c.shape(t.shape)) for t in results]
    values = c.builder.call(len(c.calls) - 1, operands, shapes, [c.shape(t.stride()) for t in results])
    return values[0] if len(values) == 1 else tuple(values)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not all(isinstance(n, int) for n in (*value.shape, *value.stride()))
    return isinstance(value, (torch.SymInt, torch.SymFloat))


def bound_calls(calls: Sequence[Any], device_index: int) -> list[Any]:
    """Returns the calls of a graph as a plan takes them."""
    return [call.bound(device_index) if isinstance(call, UserCall) else call for call in calls]
