# torch_ocl_compile/lowering/reductions/reduction.py: sums, means, extremes, variances and norms over some dimensions.
"""The accumulator's dtype is defined by the reduction in reductions.def; this file provides the result dtype that
PyTorch promises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, dims_of, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower

aten = torch.ops.aten


def fold(c: Context, name: str, x: ir.Value, dim: Any, keepdim: bool, dtype: ir.DType) -> ir.Value:
    """Reduces with one result, stored as `dtype`. The input is converted to the compute type of `dtype`."""
    if not x.sizes:
        return c.cast(x, dtype)
    if not (ir.is_floating(x.dtype) and ir.is_floating(dtype)):
        x = c.cast(x, dtype)
    return c.builder.reduce(name, x, dims_of(dim, len(x.sizes)), keepdim, dtype)[0]


@lower(aten.sum.default, aten.sum.dim_IntList)
def sum_(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> ir.Value:
    return fold(c, "sum", x, dim, keepdim, c.dtype)


@lower(aten.prod.default, aten.prod.dim_int)
def prod(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> ir.Value:
    return fold(c, "prod", x, dim, keepdim, c.dtype)


def count(c: Context, x: ir.Value, dim: Any) -> ir.IndexExpr:
    """Returns the number of elements that are reduced into one result."""
    return functools.reduce(lambda a, b: a * b, (x.sizes[d] for d in dims_of(dim, len(x.sizes))), ir.IndexExpr(1))


def divide(c: Context, x: ir.Value, n: ir.IndexExpr, dtype: ir.DType) -> ir.Value:
    """Returns x / n, where n is a product of sizes."""
    return c.pointwise(lambda s: s / s.nest.index(n).cast(s.dtype), x, dtype=dtype)


@lower(aten.mean.default, aten.mean.dim)
def mean(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> ir.Value:
    total = fold(c, "sum", x, dim, keepdim, ir.compute_type(c.dtype))
    return divide(c, total, count(c, x, dim), c.dtype)


@lower(aten.amax.default, aten.max.default)
def amax(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False) -> ir.Value:
    return _extreme(c, "max", x, dim, keepdim)


@lower(aten.amin.default, aten.min.default)
def amin(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False) -> ir.Value:
    return _extreme(c, "min", x, dim, keepdim)


def _extreme(c: Context, name: str, x: ir.Value, dim: Any, keepdim: bool) -> ir.Value:
    if x.dtype == ir.DType.kBool:
        return fold(c, "any" if name == "max" else "all", x, dim, keepdim, c.dtype)
    return fold(c, name, x, dim, keepdim, c.dtype)


def _position(c: Context, name: str, x: ir.Value, dim: Any, keepdim: bool) -> ir.Value:
    """Returns the position of the first extreme element along `dim`, or in the flattened x if dim is None (int64)."""
    if not x.sizes:
        return c.constant(0, ir.DType.kI64)
    if dim is not None:
        return c.builder.reduce(name, x, [dim % len(x.sizes)], keepdim, ir.DType.kI64)[0]
    flat = c.builder.reshape(x, [c.numel(x.sizes)])
    found = c.builder.reduce(name, flat, [0], False, ir.DType.kI64)[0]
    return c.builder.reshape(found, [ir.IndexExpr(1)] * len(x.sizes)) if keepdim else found


@lower(aten.max.dim)
def max_dim(c: Context, x: ir.Value, dim: int, keepdim: bool = False) -> Any:
    return _dim_extreme(c, "max", x, dim, keepdim)


@lower(aten.min.dim)
def min_dim(c: Context, x: ir.Value, dim: int, keepdim: bool = False) -> Any:
    return _dim_extreme(c, "min", x, dim, keepdim)


def _dim_extreme(c: Context, name: str, x: ir.Value, dim: int, keepdim: bool) -> Any:
    """Returns (value, position) of the extreme element along `dim`."""
    wide = x if x.dtype != ir.DType.kBool else c.cast(x, ir.DType.kI32)
    value = c.cast(fold(c, name, wide, [dim], keepdim, wide.dtype), x.dtype)
    return value, _position(c, "arg" + name, wide, dim, keepdim)


@lower(aten.argmax.default)
def argmax(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False) -> ir.Value:
    return _position(c, "argmax", x, dim, keepdim)


@lower(aten.argmin.default)
def argmin(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False) -> ir.Value:
    return _position(c, "argmin", x, dim, keepdim)


def _truth(c: Context, name: str, x: ir.Value, dim: Any, keepdim: bool) -> ir.Value:
    """Lowers any and all. The result is bool, but uint8 for a uint8 input, as in PyTorch."""
    if x.dtype != ir.DType.kBool:
        x = c.pointwise(lambda v: v.ne(0), x, dtype=ir.DType.kBool, compute=x.dtype)
    return c.cast(fold(c, name, x, dim, keepdim, ir.DType.kBool), c.dtype)


@lower(aten.any.default, aten.any.dim, aten.any.dims)
def any_(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False) -> ir.Value:
    return _truth(c, "any", x, dim, keepdim)


@lower(aten.all.default, aten.all.dim, aten.all.dims)
def all_(c: Context, x: ir.Value, dim: Any = None, keepdim: bool = False) -> ir.Value:
    return _truth(c, "all", x, dim, keepdim)


def welford(c: Context, x: ir.Value, dim: Any, keepdim: bool, dtype: ir.DType) -> tuple[ir.Value, ir.Value]:
    """Returns (mean, sum of squared differences from the mean) as `dtype`, computed in one pass."""
    if not x.sizes:
        x = c.builder.unsqueeze(x, 0)
        return welford(c, x, [0], False, dtype)
    mean, squares = c.builder.reduce("welford", x, dims_of(dim, len(x.sizes)), keepdim, dtype)[:2]
    n = count(c, x, dim)
    if n.is_const(0):
        mean = c.constant(float("nan"), dtype, mean.sizes)
    elif n.is_const(1):  # The mean of an infinity is the infinity, but the kernel computes differences of elements.
        mean = fold(c, "sum", x, dim, keepdim, dtype)
    return mean, squares


def variance(
    c: Context, x: ir.Value, dim: Any, correction: Any, keepdim: bool, dtype: ir.DType
) -> tuple[ir.Value, ir.Value]:
    """Returns (variance, mean), where the variance is the sum of squares / max(n - correction, 0)."""
    accumulate = ir.compute_type(dtype)
    mean, squares = welford(c, x, dim, keepdim, accumulate)
    n, less = count(c, x, dim), 1.0 if correction is None else float(correction)

    def normalised(s: t.Term) -> t.Term:
        return s / t.maximum(s.nest.index(n).cast(s.dtype) - less, 0.0)

    return c.pointwise(normalised, squares, dtype=dtype), c.cast(mean, dtype)


@lower(aten.var.correction)
def var(c: Context, x: ir.Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> ir.Value:
    return variance(c, x, dim, correction, keepdim, c.dtype)[0]


@lower(aten.std.correction)
def std(c: Context, x: ir.Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> ir.Value:
    v = variance(c, x, dim, correction, keepdim, ir.compute_type(c.dtype))[0]
    return c.pointwise(t.sqrt, v)


@lower(aten.var_mean.correction)
def var_mean(c: Context, x: ir.Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return variance(c, x, dim, correction, keepdim, ir_dtype(c.val[0].dtype))


def vector_norm(
    c: Context, x: ir.Value, order: Any, dtype: ir.DType, dim: Any = None, keepdim: bool = False
) -> ir.Value:
    """Returns (sum |x|^order)^(1 / order). Order inf or -inf: the largest or smallest |x|; order 0: the number of
    nonzeros."""
    wide = ir.compute_type(dtype)
    order = float(order)
    if order in (float("inf"), float("-inf")):
        size = c.pointwise(t.abs_, x, dtype=wide)
        return c.cast(fold(c, "max" if order > 0 else "min", size, dim, keepdim, wide), dtype)
    maps: dict[float, Callable[[t.Term], t.Term]] = {
        0.0: lambda v: v.ne(0.0),
        1.0: t.abs_,
        2.0: lambda v: v * v,
    }
    powers = c.pointwise(maps.get(order, lambda v: t.call("pow", t.abs_(v), order)), x, dtype=wide)
    total = fold(c, "sum", powers, dim, keepdim, wide)
    if order in (0.0, 1.0):
        return c.cast(total, dtype)
    return c.pointwise(lambda s: t.sqrt(s) if order == 2.0 else t.call("pow", s, 1 / order), total, dtype=dtype)


@lower(aten.linalg_vector_norm.default)
def linalg_vector_norm(
    c: Context, x: ir.Value, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> ir.Value:
    return vector_norm(c, x, order, c.dtype, dim, keepdim)
