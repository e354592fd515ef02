# torch_ocl_compile/lowering/reductions/normalization.py: batch norm and softmax, forward and backward; AOTAutograd keeps both whole.
"""Each is a few reductions and pointwise nodes in float32 or wider. The scheduler fuses the nodes of one row into one
kernel.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Term
from torch_ocl_compile.lowering.reductions.reduction import welford

aten = torch.ops.aten


def _channels(c: Context, x: ir.Value | None, rank: int) -> ir.Value | None:
    """Returns x [c] as [c, 1, 1], which broadcasts over [n, c, h, w]."""
    if x is None:
        return None
    return c.builder.reshape(x, [x.sizes[0], *[ir.IndexExpr(1)] * (rank - 2)])


def _others(rank: int) -> list[int]:
    """Returns all dimensions but that of the channels."""
    return [0, *range(2, rank)]


def _elements(x: ir.Value) -> ir.IndexExpr:
    """Returns the number of elements per channel."""
    return functools.reduce(lambda a, b: a * b, (x.sizes[d] for d in _others(len(x.sizes))), ir.IndexExpr(1))


def _as_float(nest_term: Term, n: ir.IndexExpr) -> Term:
    return nest_term.nest.index(n).cast(nest_term.dtype)


def _given(*values: ir.Value | None) -> list[ir.Value]:
    return [v for v in values if v is not None]


def _affine(
    c: Context, x: ir.Value, mean: ir.Value, invstd: ir.Value, weight: Any, bias: Any, dtype: ir.DType
) -> ir.Value:
    """Returns (x - mean) * (invstd * weight) + bias."""
    rank = len(x.sizes)

    def normalise(v: Term, m: Term, s: Term, *affine: Term) -> Term:
        left = list(affine)
        scale = s * left.pop(0) if weight is not None else s
        y = (v - m) * scale
        return y + left.pop(0) if bias is not None else y

    columns = [_channels(c, v, rank) for v in (mean, invstd, weight, bias) if v is not None]
    return c.pointwise(normalise, x, *columns, dtype=dtype)


def _running(c: Context, old: ir.Value, new: ir.Value, momentum: float, scale: Any = None) -> ir.Value:
    """Returns (1 - momentum) * old + momentum * scale(new)."""

    def update(a: Term, b: Term) -> Term:
        return a * (1.0 - momentum) + (b if scale is None else scale(b)) * momentum

    return c.pointwise(update, old, new, dtype=old.dtype)


def train_batch_norm(
    c: Context, x: ir.Value, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float, dtype: ir.DType
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value | None, ir.Value | None]:
    """Returns (y, saved mean, saved 1 / std, new running mean, new running variance).

    Statistics are float32 or wider. The running variance is the unbiased one.
    """
    wide = ir.compute_type(dtype)
    save_mean, squares = welford(c, x, _others(len(x.sizes)), False, wide)
    n = _elements(x)
    invstd = c.pointwise(lambda s: t.rsqrt(s / _as_float(s, n) + eps), squares, dtype=wide)
    y = _affine(c, x, save_mean, invstd, weight, bias, dtype)
    new_mean = None if mean is None else _running(c, mean, save_mean, momentum)
    unbiased = (lambda s: s / (_as_float(s, n) - 1.0)) if momentum else None
    new_var = None if var is None else _running(c, var, squares, momentum, unbiased)
    return y, save_mean, invstd, new_mean, new_var


def eval_batch_norm(
    c: Context, x: ir.Value, weight: Any, bias: Any, mean: ir.Value, var: ir.Value, eps: float, dtype: ir.DType
) -> ir.Value:
    def of_channel(v: Term, *weight: Term) -> Term:
        return t.rsqrt(v + eps) * weight[0] if weight else t.rsqrt(v + eps)

    wide = ir.compute_type(var.dtype)
    scale = c.pointwise(of_channel, var, *_given(weight), dtype=wide)
    if dtype not in (ir.DType.kF16, ir.DType.kBF16):
        return _affine(c, x, mean, scale, None, bias, dtype)
    # As PyTorch computes it on CPUs. The sum may cancel, but the rounding of x to 16 bits has cost more digits.
    shift = c.pointwise(lambda m, s, *b: (b[0] if b else 0.0) - m * s, mean, scale, *_given(bias), dtype=wide)
    rank = len(x.sizes)
    columns = [_channels(c, v, rank) for v in (scale, shift)]
    return c.pointwise(lambda v, s, b: v * s + b, x, *columns, dtype=dtype)


def _empty(c: Context, fake: torch.Tensor) -> ir.Value:
    return c.constant(0.0, ir_dtype(fake.dtype), c.shape(fake.shape))


@lower(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    c: Context, x: ir.Value, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    dtype = ir_dtype(c.val[0].dtype)
    if not training:
        y = eval_batch_norm(c, x, weight, bias, mean, var, eps, dtype)
        return y, _empty(c, c.val[1]), _empty(c, c.val[2]), mean, var
    y, m, s, new_mean, new_var = train_batch_norm(c, x, weight, bias, mean, var, momentum, eps, dtype)
    return y, _stored(c, m, c.val[1]), _stored(c, s, c.val[2]), new_mean, new_var


def _stored(c: Context, x: ir.Value, fake: torch.Tensor) -> ir.Value:
    return c.cast(x, ir_dtype(fake.dtype))


@lower(aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(
    c: Context, x: ir.Value, weight: Any, bias: Any, mean: ir.Value, var: ir.Value, momentum: float, eps: float
) -> Any:
    y = eval_batch_norm(c, x, weight, bias, mean, var, eps, ir_dtype(c.val[0].dtype))
    return y, _empty(c, c.val[1]), _empty(c, c.val[2])


@lower(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    c: Context, x: ir.Value, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Lowers instance norm, which always uses the statistics of the batch."""
    y, m, s, _, _ = train_batch_norm(c, x, weight, bias, None, None, momentum, eps, ir_dtype(c.val[0].dtype))
    return y, _stored(c, m, c.val[1]), _stored(c, s, c.val[2])


@lower(aten._native_batch_norm_legit.default, aten.native_batch_norm.default)
def batch_norm_in_place(
    c: Context, x: ir.Value, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Lowers batch norm and writes the new running statistics into their tensors."""
    y, m, s, new_mean, new_var = batch_norm_functional(c, x, weight, bias, mean, var, training, momentum, eps)
    for old, new in ((mean, new_mean), (var, new_var)) if training else ():
        if old is not None:
            c.builder.copy_into(old, new)
    return y, m, s


@lower(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    c: Context,
    grad: ir.Value,
    x: ir.Value,
    weight: ir.Value | None,
    mean: Any,
    var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    mask: Any,
) -> Any:
    """Returns the gradients of x, weight and bias, None where the mask does not ask for one.

    With xhat = (x - mean) * invstd and sums over all dimensions but the channel: gw = sum(grad * xhat), gb =
    sum(grad), and in training gx = weight * invstd * (grad - (gb + xhat * gw) / n).
    """
    rank = len(x.sizes)
    wide = ir.compute_type(x.dtype)
    if not train:
        save_mean = mean
        save_invstd = c.pointwise(lambda v: t.rsqrt(v + eps), var, dtype=ir.compute_type(var.dtype))
    m, s = _channels(c, save_mean, rank), _channels(c, save_invstd, rank)
    column_weight = _channels(c, weight, rank)
    others, n = _others(rank), _elements(x)
    gb = c.builder.reduce("sum", grad, others, False, wide)[0] if train or mask[2] else None
    gw = None
    if train or mask[1]:
        centred = c.pointwise(lambda g, v, a: g * (v - a), grad, x, m, dtype=wide)
        dot = c.builder.reduce("sum", centred, others, False, wide)[0]
        gw = c.pointwise(lambda d, i: d * i, dot, save_invstd, dtype=wide)

    def in_training(g: Term, v: Term, a: Term, i: Term, mean_g: Term, slope: Term, *w: Term) -> Term:
        return (g - (mean_g + (v - a) * slope)) * (i * w[0] if w else i)

    def in_eval(g: Term, i: Term, *w: Term) -> Term:
        return g * (i * w[0] if w else i)

    gx = None
    if mask[0]:
        dtype = ir_dtype(c.val[0].dtype)
        if train:
            mean_g = c.pointwise(lambda b: b / _as_float(b, n), gb, dtype=wide)
            slope = c.pointwise(lambda w, i: w * i / _as_float(w, n), gw, save_invstd, dtype=wide)
            columns = (_channels(c, mean_g, rank), _channels(c, slope, rank))
            gx = c.pointwise(in_training, grad, x, m, s, *columns, *_given(column_weight), dtype=dtype)
        else:
            gx = c.pointwise(in_eval, grad, s, *_given(column_weight), dtype=dtype)
    return (
        gx,
        _stored(c, gw, c.val[1]) if mask[1] and gw is not None else None,
        _stored(c, gb, c.val[2]) if mask[2] and gb is not None else None,
    )


def row_sums(c: Context, x: ir.Value, dim: int, wide: ir.DType) -> list[ir.Value]:
    """Returns (largest element m, sum of exp(x - m)) along `dim`, computed in one pass.

    The sum is NaN for an infinite m, as exp(m - m) is.
    """
    if not x.sizes:
        return [c.cast(x, wide), c.pointwise(lambda v: t.exp(v - v), x, dtype=wide)]
    largest, total = c.builder.reduce("softmax", x, [dim % len(x.sizes)], True, wide)
    return [largest, c.pointwise(lambda m, s: s + (m - m), largest, total, dtype=wide)]


def _row_total(c: Context, x: ir.Value, dim: int, wide: ir.DType) -> ir.Value:
    """Returns the sum along `dim`. A 0-dimensional x counts as a row of one element."""
    total: ir.Value = c.builder.reduce("sum", x, [dim % len(x.sizes)], True, wide)[0] if x.sizes else x
    return total


@lower(aten._softmax.default)
def softmax(c: Context, x: ir.Value, dim: int, half_to_float: bool = False) -> ir.Value:
    largest, total = row_sums(c, x, dim, ir.compute_type(c.dtype))
    return c.pointwise(lambda v, m, s: t.exp(v - m) / s, x, largest, total)


@lower(aten._log_softmax.default)
def log_softmax(c: Context, x: ir.Value, dim: int, half_to_float: bool = False) -> ir.Value:
    largest, total = row_sums(c, x, dim, ir.compute_type(c.dtype))
    return c.pointwise(lambda v, m, s: v - m - t.log(s), x, largest, total)


@lower(aten._softmax_backward_data.default)
def softmax_backward(c: Context, grad: ir.Value, y: ir.Value, dim: int, input_dtype: torch.dtype) -> ir.Value:
    """Returns y * (grad - sum(grad * y))."""
    wide = ir.compute_type(y.dtype)
    products = c.pointwise(lambda g, v: g * v, grad, y, dtype=wide)
    total = _row_total(c, products, dim, wide)
    return c.pointwise(lambda g, v, s: v * (g - s), grad, y, total)


@lower(aten._log_softmax_backward_data.default)
def log_softmax_backward(c: Context, grad: ir.Value, y: ir.Value, dim: int, input_dtype: torch.dtype) -> ir.Value:
    """Returns grad - exp(y) * sum(grad)."""
    total = _row_total(c, grad, dim, ir.compute_type(y.dtype))
    return c.pointwise(lambda g, v, s: g - t.exp(v) * s, grad, y, total)


@lower("aten._safe_softmax.default")
def safe_softmax(c: Context, x: ir.Value, dim: int, dtype: Any = None) -> ir.Value:
    """Returns the softmax, and 0 for rows in which every element is -inf."""
    largest, total = row_sums(c, x, dim, ir.compute_type(c.dtype))
    return c.pointwise(lambda v, m, s: t.where(m.eq(-float("inf")), 0.0, t.exp(v - m) / s), x, largest, total)
