# torch_ocl_compile/lowering/layers/adaptive_pooling.py: adaptive average and max pooling to any size, forward and backward.
"""Output o covers the input elements from o * size // out up to, exclusive, ceil((o + 1) * size / out).

Windows may overlap, and their lengths differ by at most one. The loops run over the longest window; a mask ends the
shorter ones.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term
from torch_ocl_compile.lowering.layers.pooling import position_of_largest, row_major

aten = torch.ops.aten
Shape = Sequence[ir.IndexExpr]


def _range(o: ir.IndexExpr, size: ir.IndexExpr, out: ir.IndexExpr) -> tuple[ir.IndexExpr, ir.IndexExpr]:
    """Returns the range [first, end) of input elements that output element `o` covers.

    With `size` and `out` exchanged it is the range of output elements that cover input element `o`.
    """
    return ir.floordiv(o * size, out), ir.ceildiv((o + 1) * size, out)


def _longest(size: ir.IndexExpr, out: ir.IndexExpr) -> ir.IndexExpr:
    if not (size.is_const() and out.is_const()):
        return ir.ceildiv(size, out) + 1
    n, m = size.constant(), out.constant()
    return ir.IndexExpr(max((-(-(o + 1) * n // m) - o * n // m for o in range(m)), default=0))


def _window_coordinates(nest: Nest, ins: Shape, outs: Shape) -> tuple[list[ir.IndexExpr], Term | None]:
    """Returns (input coordinates of element r of an output element's window, a mask or None).

    The mask is false past the end of a window that is shorter than the longest; None means that all windows have the same
    length.
    """
    at, mask = [], None
    for i, r, size, out in zip(nest.i[-len(ins) :], nest.r, ins, outs, strict=True):
        start, end = _range(i, size, out)
        at.append(start + r)
        if not (size.is_const() and out.is_const() and size.constant() % out.constant() == 0):
            part = nest.index(start + r) < nest.index(end)
            mask = part if mask is None else mask & part
    return at, mask


def _count(nest: Nest, at: Shape, ins: Shape, outs: Shape) -> Term:
    """Returns the number of input elements that the output element `at` covers."""
    ranges = [_range(i, size, out) for i, size, out in zip(at, ins, outs, strict=True)]
    return nest.index(ir.product([end - start for start, end in ranges]))


def _is_empty(sizes: Shape) -> bool:
    return any(size.is_const(0) for size in sizes)


def _windows(c: Context, x: ir.Value, fake: torch.Tensor, spatial: int) -> tuple[Nest, list[Any], Term | None]:
    ins, outs = x.sizes[-spatial:], c.shape(fake.shape)[-spatial:]
    nest = Nest(c.builder, c.shape(fake.shape), [_longest(i, o) for i, o in zip(ins, outs, strict=True)])
    at, mask = _window_coordinates(nest, ins, outs)
    return nest, [*nest.i[:-spatial], *at], mask


def _average(c: Context, x: ir.Value, spatial: int) -> ir.Value:
    ins, outs = x.sizes[-spatial:], c.sizes[-spatial:]
    if _is_empty(outs):
        return c.constant(0, c.dtype, c.sizes)
    nest, at, mask = _windows(c, x, c.val, spatial)
    total = nest.reduce("sum", [nest.load(x, at, mask)], [ir.compute_type(c.dtype)])[0]
    after = c.nest(c.val.shape)
    value = after.load(total, after.i)
    if mask is None:
        divisor: Any = float(functools.reduce(lambda a, b: a * b, (r.constant() for r in map(_longest, ins, outs))))
    else:
        divisor = _count(after, after.i[-spatial:], ins, outs).cast(value.dtype)
    return after.store((value / divisor, c.dtype))[0]


def _gradient_nest(c: Context, grad: ir.Value, spatial: int) -> tuple[Nest, list[Any], list[ir.IndexExpr], Term]:
    """Returns a nest over the input elements, reduced over the output elements whose windows cover one.

    Input element h lies in the windows of the outputs from h * out // size up to, exclusive, ceil((h + 1) * out /
    size).
    """
    ins, outs = c.sizes[-spatial:], grad.sizes[-spatial:]
    nest = c.nest(c.val.shape, [ir.ceildiv(o, i) + 1 for i, o in zip(ins, outs, strict=True)])
    at, mask = [], None
    for h, r, size, out in zip(nest.i[-spatial:], nest.r, ins, outs, strict=True):
        first, last = _range(h, out, size)
        at.append(first + r)
        part = nest.index(first + r) < nest.index(last)
        mask = part if mask is None else mask & part
    assert mask is not None
    return nest, [*nest.i[:-spatial], *at], at, mask


def _average_backward(c: Context, grad: ir.Value, spatial: int) -> ir.Value:
    nest, at, windows, mask = _gradient_nest(c, grad, spatial)
    value = nest.load(grad, at, mask)
    count = _count(nest, windows, c.sizes[-spatial:], grad.sizes[-spatial:])
    return nest.reduce("sum", [t.where(mask, value / count.cast(value.dtype), 0.0)], [c.dtype])[0]


def _largest(c: Context, x: ir.Value, spatial: int) -> Any:
    """Returns (the largest element of each window, its index in the flattened spatial dimensions of the input)."""
    fake, dtype = c.val[0], ir_dtype(c.val[0].dtype)
    if _is_empty(c.shape(fake.shape)):
        return c.constant(0, dtype, c.shape(fake.shape)), c.constant(0, ir.DType.kI64, c.shape(fake.shape))

    def window() -> tuple[Nest, Term, Term | None]:
        nest, at, mask = _windows(c, x, fake, spatial)
        value = nest.load(x, at, mask)
        return nest, value if mask is None else t.where(mask, value, -float("inf")), mask

    nest, value, _ = window()
    largest = nest.reduce("max", [value], [dtype])[0]
    position = position_of_largest(c, *window())
    after = c.nest(c.val[1].shape)
    ins, outs = x.sizes[-spatial:], c.shape(fake.shape)[-spatial:]
    longest = [_longest(i, o) for i, o in zip(ins, outs, strict=True)]
    left = after.load(position, after.i).cast(ir.DType.kI64).as_index()
    at: list[ir.IndexExpr] = []
    for d in reversed(range(spatial)):
        start, _ = _range(after.i[d - spatial], ins[d], outs[d])
        at.insert(0, start + (ir.mod(left, longest[d]) if d else left))
        left = ir.floordiv(left, longest[d])
    return largest, after.store((after.index(row_major(at, ins)), ir.DType.kI64))[0]


def _largest_backward(c: Context, grad: ir.Value, indices: ir.Value, spatial: int) -> ir.Value:
    nest, at, _, mask = _gradient_nest(c, grad, spatial)
    mine = nest.index(row_major(nest.i[-spatial:], c.sizes[-spatial:]))
    chosen = nest.load(indices, at, mask).cast(ir.DType.kI64).eq(mine)
    return nest.reduce("sum", [t.where(mask & chosen, nest.load(grad, at, mask), 0)], [c.dtype])[0]


def _rows(spatial: int) -> None:
    name = f"{spatial}d"
    lower(f"aten._adaptive_avg_pool{name}.default")(lambda c, x, size: _average(c, x, spatial))
    lower(f"aten._adaptive_avg_pool{name}_backward.default")(lambda c, grad, x: _average_backward(c, grad, spatial))
    lower(f"aten.adaptive_max_pool{name}.default")(lambda c, x, size: _largest(c, x, spatial))
    lower(f"aten.adaptive_max_pool{name}_backward.default")(
        lambda c, grad, x, indices: _largest_backward(c, grad, indices, spatial)
    )


_rows(2)
_rows(3)
