# torch_ocl_compile/lowering/products/contraction.py: matrix products: mm, bmm, addmm, mv, dot.
"""Operands are views, because for the GEMM kernels a transposed matrix differs only in its strides. Scales and added
matrices are pointwise nodes, which are fused into the kernel as its epilogue. A product to which a matrix is added is not
rounded to 16 bits before.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower

aten = torch.ops.aten


def contract(c: Context, a: ir.Value, b: ir.Value, dtype: ir.DType, operands: ir.DType | None = None) -> ir.Value:
    """Returns the batched product [b, m, k] x [b, k, n] -> [b, m, n]. `operands`: their dtype, else that of the result.

    Integers but int8 are computed by a plain reduction, since no matrix-product kernel takes them.
    """
    if (ir.is_floating(dtype) or operands == ir.DType.kI8) and not a.sizes[2].is_const(0):
        given = operands or dtype
        return c.builder.contract(c.cast(a, given), c.cast(b, given), dtype)
    nest = c.nest([a.sizes[0], a.sizes[1], b.sizes[2]], [a.sizes[2]])
    x = nest.load(a, [nest.i[0], nest.i[1], nest.r[0]]).cast(ir.compute_type(dtype))
    y = nest.load(b, [nest.i[0], nest.r[0], nest.i[2]]).cast(ir.compute_type(dtype))
    return nest.reduce("sum", [x * y], [dtype])[0]


def product(c: Context, a: ir.Value, b: ir.Value, dtype: ir.DType, operands: ir.DType | None = None) -> ir.Value:
    """Returns the matrix product of two matrices. dtype, operands: see contract()."""
    up = c.builder.unsqueeze
    return c.builder.squeeze(contract(c, up(a, 0), up(b, 0), dtype, operands), [0])


def add_scaled(c: Context, x: ir.Value, y: ir.Value, beta: Any, alpha: Any) -> ir.Value:
    """Returns beta * x + alpha * y; x is not read if beta is 0. Factors that vary from call to call are values."""
    if not ir.is_floating(c.dtype) and not isinstance(alpha, torch.SymInt) and not isinstance(beta, torch.SymInt):
        beta, alpha = int(beta), int(alpha)  # PyTorch truncates both factors for integer results.

    def scaled(a: t.Term, factor: Any) -> t.Term:
        return a if isinstance(factor, int | float) and factor == 1 else a * factor

    def combine(a: t.Term, b: t.Term, beta: Any, alpha: Any) -> t.Term:
        added = scaled(a, beta)
        return scaled(b, alpha) + (t.where(beta.ne(0), added, 0) if isinstance(beta, t.Term) else added)

    if isinstance(beta, int | float) and beta == 0:
        return c.cast(y, c.dtype) if isinstance(alpha, int | float) and alpha == 1 else c.pointwise(scaled, y, alpha)
    return c.pointwise(combine, x, y, beta, alpha)


@lower(aten.mm.default)
def mm(c: Context, a: ir.Value, b: ir.Value) -> ir.Value:
    return product(c, a, b, c.dtype)


@lower(aten.addmm.default)
def addmm(c: Context, x: ir.Value, a: ir.Value, b: ir.Value, *, beta: Any = 1, alpha: Any = 1) -> ir.Value:
    return add_scaled(c, x, product(c, a, b, ir.compute_type(c.dtype), c.dtype), beta, alpha)


def products(c: Context, a: ir.Value, b: ir.Value, index: int, dtype: ir.DType) -> ir.Value:
    """Returns the batched product a b in `dtype`, where b is argument `index` of the node.

    If b is one matrix expanded over the batch, such as a layer's weight, all rows of the batch are multiplied at
    once, so that tiles need not end where a batch element does.
    """
    assert c.node is not None
    given: Any = c.node.args[index]
    stride = given.meta["val"].stride(0)
    if not isinstance(stride, int) or stride != 0:
        return contract(c, a, b, dtype, c.dtype)
    batch, rows, depth = a.sizes
    # A view of the matrix before it was expanded.
    one = c.builder.slice(b, 0, 0, 1, 1)
    merged = c.builder.reshape(a, [1, batch * rows, depth])
    return c.builder.reshape(contract(c, merged, one, dtype, c.dtype), [batch, rows, b.sizes[2]])


@lower(aten.bmm.default)
def bmm(c: Context, a: ir.Value, b: ir.Value) -> ir.Value:
    return products(c, a, b, 1, c.dtype)


@lower(aten.baddbmm.default)
def baddbmm(c: Context, x: ir.Value, a: ir.Value, b: ir.Value, *, beta: Any = 1, alpha: Any = 1) -> ir.Value:
    return add_scaled(c, x, products(c, a, b, 2, ir.compute_type(c.dtype)), beta, alpha)


@lower(aten.mv.default)
def mv(c: Context, a: ir.Value, x: ir.Value) -> ir.Value:
    return c.builder.squeeze(product(c, a, c.builder.unsqueeze(x, 1), c.dtype), [1])


@lower(aten.dot.default, "aten.vdot.default")
def dot(c: Context, x: ir.Value, y: ir.Value) -> ir.Value:
    products = c.pointwise(lambda a, b: a * b, x, y, dtype=ir.compute_type(c.dtype))
    return c.builder.reduce("sum", products, [0], False, c.dtype)[0]
