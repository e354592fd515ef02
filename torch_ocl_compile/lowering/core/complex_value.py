# torch_ocl_compile/lowering/core/complex_value.py: a complex value is a pair of real ones; in memory, they are the last dimension.
"""The IR has no complex numbers. A complex tensor enters a plan as its real view `[..., 2]`, whose halves are the two parts, and
a complex result is one buffer `[..., 2]`. Between them, the parts are values like any others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile._C import Recipe, ir

# The dtype of the parts.
PARTS: dict[torch.dtype, torch.dtype] = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


class Complex(NamedTuple):
    re: ir.Value
    im: ir.Value

    @property
    def sizes(self) -> list[ir.IndexExpr]:
        return self.re.sizes

    @property
    def dtype(self) -> ir.DType:
        """Returns the dtype of the parts."""
        return self.re.dtype

    def map(self, function: Callable[[ir.Value], ir.Value]) -> Complex:
        return Complex(function(self.re), function(self.im))


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype of the numbers in memory."""
    return PARTS.get(dtype, dtype)


def is_complex(*args: Any) -> bool:
    """Returns whether there is a complex value, number or fake tensor among the arguments."""

    def leaf(x: Any) -> bool:
        return isinstance(x, Complex)

    return any(
        isinstance(x, (Complex, complex)) or (isinstance(x, torch.Tensor) and x.dtype in PARTS)
        for x in tree_leaves(args, is_leaf=leaf)
    )


def split(builder: ir.Builder, whole: ir.Value) -> Complex:
    """Returns the parts of a real view `[..., 2]`."""
    last = len(whole.sizes) - 1
    return Complex(*(builder.select(whole, last, ir.IndexExpr(k)) for k in (0, 1)))


def joined(builder: ir.Builder, x: ir.Value | Complex) -> ir.Value:
    """Returns a complex value as its real view `[..., 2]`, and a real one as it is."""
    return builder.interleave(x.re, x.im) if isinstance(x, Complex) else x


def memory_layout(fake: torch.Tensor) -> tuple[list[Any], list[Any], Any]:
    """Returns sizes, strides and offset of a tensor's real view."""
    sizes, strides, offset = list(fake.shape), list(fake.stride()), fake.storage_offset()
    if fake.dtype in PARTS:
        return [*sizes, 2], [*(2 * s for s in strides), 1], 2 * offset
    return sizes, strides, offset


def form_of(fake: torch.Tensor) -> Recipe.Form:
    """Returns how the tensor stands for the numbers in its memory."""
    return Recipe.Form(fake.dtype in PARTS, fake.is_conj(), fake.is_neg())


def read_once(builder: ir.Builder, x: ir.Value | Complex, fake: torch.Tensor) -> ir.Value | Complex:
    """Returns a view of an input that shows, by its coordinates, in which dimensions the tensor is expanded."""
    one = ir.IndexExpr(1)

    def view(part: ir.Value) -> ir.Value:
        sizes = part.sizes
        for d, stride in enumerate(fake.stride()):
            if isinstance(stride, int) and stride == 0 and not sizes[d].is_const(1):
                part = builder.expand(builder.slice(part, d, ir.IndexExpr(0), one, one), sizes)
        return part

    return x.map(view) if isinstance(x, Complex) else view(x)


def with_bits(builder: ir.Builder, x: ir.Value | Complex, fake: torch.Tensor) -> ir.Value | Complex:
    """Applies the conjugate and the negative bit of a tensor: the numbers in its memory become those that it stands for, and
    the other way round."""
    if isinstance(x, Complex):
        if fake.is_neg():
            x = x.map(lambda part: builder.op("neg", [part]))
        return Complex(x.re, builder.op("neg", [x.im])) if fake.is_conj() else x
    return builder.op("neg", [x]) if fake.is_neg() else x
