# torch_ocl_compile/lowering/layers/loss.py: negative log likelihood loss and cross entropy, forward and backward.
"""The target class is loaded and used as a coordinate, so the loss is one gather. Other losses are decomposed."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term
from torch_ocl_compile.lowering.movement.indexing import inside
from torch_ocl_compile.lowering.reductions.normalization import row_sums

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2  # The values of at::Reduction.


def _label(nest: Nest, target: ir.Value, at: list[Any], classes: ir.IndexExpr, ignore: int) -> tuple[Term, Term]:
    """Returns (the class of a target, moved to the nearest valid one, whether the target counts)."""
    label = nest.load(target, at).cast(ir.DType.kI64)
    return inside(label, classes), label.ne(ignore)


def _sample(nest: Nest, x: ir.Value, target: ir.Value, weight: ir.Value | None, ignore: int, at: list[Any]) -> Any:
    """Returns (-x[class] * weight[class], weight[class], whether the target counts) of one target.

    The first two are 0 if the class is `ignore`. `at` are the coordinates of the target: [], [n] or [n, h, w]. The
    class is dimension 1 of x, or dimension 0 without a batch.
    """
    label, valid = _label(nest, target, at, x.sizes[1 if len(x.sizes) > 1 else 0], ignore)
    index = label.as_index()
    value = -nest.load(x, [*at[:1], index, *at[1:]], valid)
    w = nest.constant(1.0, value.dtype) if weight is None else nest.load(weight, [index], valid).cast(value.dtype)
    return value * w if weight is not None else value, t.where(valid, w, 0.0), valid


def _forward(c: Context, x: ir.Value, target: ir.Value, weight: Any, reduction: int, ignore: int) -> Any:
    dtype, wide = ir_dtype(c.val[0].dtype), ir.compute_type(x.dtype)
    if reduction == NONE:
        nest = Nest(c.builder, target.sizes)
        value, _, valid = _sample(nest, x, target, weight, ignore, nest.i)
        return nest.store((t.where(valid, value, 0.0), dtype))[0], c.constant(0.0, dtype)

    def total(of_weights: bool) -> ir.Value:
        nest = Nest(c.builder, [], target.sizes)
        value, w, valid = _sample(nest, x, target, weight, ignore, nest.r)
        return nest.reduce("sum", [w if of_weights else t.where(valid, value, 0.0)], [wide])[0]

    loss, weights = total(False), total(True)
    if reduction == MEAN:
        loss = c.pointwise(lambda a, b: a / b, loss, weights, dtype=dtype)
    return c.cast(loss, dtype), c.cast(weights, ir_dtype(c.val[1].dtype))


def _backward(
    c: Context, grad: ir.Value, x: ir.Value, target: ir.Value, weight: Any, reduction: int, ignore: int, total: ir.Value
) -> ir.Value:
    """Returns -grad * weight at the target's class and 0 elsewhere, divided by the total weight for the mean."""
    nest = Nest(c.builder, x.sizes)
    axis = 1 if len(x.sizes) > 1 else 0
    at = [i for d, i in enumerate(nest.i) if d != axis]
    label, valid = _label(nest, target, at, x.sizes[axis], ignore)
    valid = valid & label.eq(nest.index(nest.i[axis]))
    value: Term = -nest.load(grad, at if reduction == NONE and grad.sizes else [])
    if weight is not None:
        value = value * nest.load(weight, [nest.i[axis]]).cast(value.dtype)
    if reduction == MEAN:
        value = value / nest.load(total, []).cast(value.dtype)
    return nest.store((t.where(valid, value, 0.0), c.dtype))[0]


@lower("ocl.row_sums.default")
def row_sums_of(c: Context, x: ir.Value, dim: int) -> Any:
    return tuple(row_sums(c, x, dim, ir.compute_type(x.dtype)))


@lower("ocl.cross_entropy_backward.default")
def cross_entropy_backward(
    c: Context, grad: ir.Value, x: ir.Value, largest: ir.Value, total: ir.Value, target: ir.Value, *rest: Any
) -> ir.Value:
    """Returns (softmax(x) - 1 at the target's class) * the gradient of the row. An ignored row has the gradient 0."""
    weight, reduction, ignore, total_weight, _ = rest
    nest = Nest(c.builder, x.sizes)
    at = [nest.i[0], *nest.i[2:]]
    row: list[Any] = [nest.i[0], 0, *nest.i[2:]]
    label, counts = _label(nest, target, at, x.sizes[1], ignore)
    value: Term = nest.load(grad, at if reduction == NONE else [])
    if weight is not None:
        value = value * nest.load(weight, [label.as_index()], counts).cast(value.dtype)
    if reduction == MEAN:
        value = value / nest.load(total_weight, []).cast(value.dtype)
    value = t.where(counts, value, 0.0)
    p = t.exp(nest.load(x, nest.i) - nest.load(largest, row)) / nest.load(total, row)
    hit = t.where(label.eq(nest.index(nest.i[1])), 1.0, 0.0)
    return nest.store(((p - hit) * value, c.dtype))[0]


for forward in (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default):
    lower(forward)(_forward)
for backward in (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default):
    lower(backward)(_backward)
