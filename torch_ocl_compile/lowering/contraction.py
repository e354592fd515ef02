# torch_ocl_compile/lowering/contraction.py: mm and its relatives, convolution and its gradients.
"""Operands go in as views: a transpose is strides to the GEMM; bias and scale are pointwise nodes fused behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering import term as t
from torch_ocl_compile.lowering.context import Context, ir_dtype
from torch_ocl_compile.lowering.registry import lower

aten = torch.ops.aten


def contract(c: Context, a: ir.Value, b: ir.Value, dtype: ir.DType) -> ir.Value:
    """[b, m, k] x [b, k, n] -> [b, m, n]. Integers multiply and sum: no template computes them."""
    if ir.is_floating(dtype) and not a.sizes[2].is_const(0):
        return c.builder.contract(c.cast(a, dtype), c.cast(b, dtype), dtype)
    nest = c.nest([a.sizes[0], a.sizes[1], b.sizes[2]], [a.sizes[2]])
    x = nest.load(a, [nest.i[0], nest.i[1], nest.r[0]]).cast(ir.compute_type(dtype))
    y = nest.load(b, [nest.i[0], nest.r[0], nest.i[2]]).cast(ir.compute_type(dtype))
    return nest.reduce("sum", [x * y], [dtype])[0]


def product(c: Context, a: ir.Value, b: ir.Value, dtype: ir.DType) -> ir.Value:
    """Matrix product of two matrices."""
    up = c.builder.unsqueeze
    return c.builder.squeeze(contract(c, up(a, 0), up(b, 0), dtype), [0])


def add_scaled(c: Context, x: ir.Value, y: ir.Value, beta: Any, alpha: Any) -> ir.Value:
    """beta * x + alpha * y; x is not read when beta is 0."""

    def combine(a: t.Term, b: t.Term) -> t.Term:
        scaled = b if alpha == 1 else b * alpha
        return scaled + (a if beta == 1 else a * beta)

    if beta == 0:
        return c.cast(y, c.dtype) if alpha == 1 else c.pointwise(lambda b: b * alpha, y)
    result: ir.Value = c.pointwise(combine, x, y)
    return result


@lower(aten.mm.default)
def mm(c: Context, a: ir.Value, b: ir.Value) -> ir.Value:
    return product(c, a, b, c.dtype)


@lower(aten.addmm.default)
def addmm(c: Context, x: ir.Value, a: ir.Value, b: ir.Value, *, beta: Any = 1, alpha: Any = 1) -> ir.Value:
    return add_scaled(c, x, product(c, a, b, c.dtype), beta, alpha)


@lower(aten.bmm.default)
def bmm(c: Context, a: ir.Value, b: ir.Value) -> ir.Value:
    return contract(c, a, b, c.dtype)


@lower(aten.baddbmm.default)
def baddbmm(c: Context, x: ir.Value, a: ir.Value, b: ir.Value, *, beta: Any = 1, alpha: Any = 1) -> ir.Value:
    return add_scaled(c, x, contract(c, a, b, c.dtype), beta, alpha)


@lower(aten.mv.default)
def mv(c: Context, a: ir.Value, x: ir.Value) -> ir.Value:
    return c.builder.squeeze(product(c, a, c.builder.unsqueeze(x, 1), c.dtype), [1])


@lower(aten.dot.default, "aten.vdot.default")
def dot(c: Context, x: ir.Value, y: ir.Value) -> ir.Value:
    products = c.pointwise(lambda a, b: a * b, x, y, dtype=ir.compute_type(c.dtype))
    return c.builder.reduce("sum", products, [0], False, c.dtype)[0]


def attributes(
    kind: ir.ConvolveKind, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> ir.ConvolveAttrs:
    """Settings of a 2-D convolution; one-dimensional ones gain a unit dimension in front."""
    result = ir.ConvolveAttrs()
    result.kind = kind
    result.stride = _pair(stride, 1)
    result.padding = _pair(padding, 0)
    result.dilation = _pair(dilation, 1)
    result.groups = groups
    return result


def _pair(values: Sequence[int], unit: int) -> list[int]:
    return [unit, *values] if len(values) == 1 else list(values)


def _planar(c: Context, x: ir.Value, spatial: int) -> ir.Value:
    """[n, c, w] -> [n, c, 1, w]."""
    return c.builder.unsqueeze(x, 2) if spatial == 1 else x


def _convolve(
    c: Context, x: ir.Value, w: ir.Value, attrs: ir.ConvolveAttrs, shape: Sequence[Any], dtype: ir.DType
) -> ir.Value:
    """Runs in 2-D and returns the traced shape."""
    sizes = c.shape(shape)
    spatial = len(sizes) - 2
    if spatial == 1:
        sizes = [*sizes[:2], ir.IndexExpr(1), sizes[2]]
    made = c.builder.convolve(_planar(c, x, spatial), _planar(c, w, spatial), attrs, sizes, dtype)
    return c.builder.squeeze(made, [2]) if spatial == 1 else made


@lower(aten.convolution.default, "aten.convolution_overrideable.default")
def convolution(
    c: Context,
    x: ir.Value,
    w: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A transposed convolution is the data gradient of the one it transposes. 3-D falls back."""
    if len(x.sizes) not in (3, 4) or not ir.is_floating(c.dtype):
        return NotImplemented
    kind = ir.ConvolveKind.kData if transposed else ir.ConvolveKind.kForward
    spatial = len(x.sizes) - 2
    stride, padding, dilation = (_repeated(v, spatial) for v in (stride, padding, dilation))
    y = _convolve(c, x, w, attributes(kind, stride, padding, dilation, groups), c.val.shape, c.dtype)
    if bias is None:
        return y
    column = c.builder.reshape(bias, [bias.sizes[0], *[ir.IndexExpr(1)] * spatial])
    return c.pointwise(lambda a, b: a + b, y, column)


def _repeated(values: Sequence[int], count: int) -> Sequence[int]:
    return list(values) * count if len(values) == 1 else values


@lower(aten.convolution_backward.default, "aten.convolution_backward_overrideable.default")
def convolution_backward(c: Context, grad: ir.Value, x: ir.Value, w: ir.Value, *settings: Any) -> Any:
    """(grad of x, of w, of bias), each if its bit of the mask is set."""
    *rest, groups, mask = settings
    stride, padding, dilation, transposed = rest[-5:-1]
    if len(x.sizes) not in (3, 4):
        return NotImplemented
    spatial = len(x.sizes) - 2
    stride, padding, dilation = (_repeated(v, spatial) for v in (stride, padding, dilation))
    kinds = ir.ConvolveKind

    def run(kind: ir.ConvolveKind, a: ir.Value, b: ir.Value, position: int) -> ir.Value | None:
        fake = c.val[position]
        if not mask[position] or fake is None:
            return None
        return _convolve(c, a, b, attributes(kind, stride, padding, dilation, groups), fake.shape, ir_dtype(fake.dtype))

    gx = run(kinds.kForward if transposed else kinds.kData, grad, w, 0)
    # The transposed convolution's weight gradient is that of the convolution which maps grad's space to x's.
    gw = run(kinds.kWeight, grad, x, 1) if transposed else run(kinds.kWeight, x, grad, 1)
    gb = None
    if mask[2]:
        gb = c.builder.reduce("sum", grad, [0, *range(2, len(grad.sizes))], False, grad.dtype)[0]
    return gx, gw, gb
