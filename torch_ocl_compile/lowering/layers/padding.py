# torch_ocl_compile/lowering/layers/padding.py: reflection and replication padding in one to three dimensions, and gradients.
"""The forward pass loads at a mirrored or clamped coordinate. The gradient gathers from all outputs that copied an
element, so nothing is accumulated in memory. Constant padding is in view.py; circular padding consists of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term


def _pairs(c: Context, pad: Sequence[Any]) -> list[tuple[ir.IndexExpr, ir.IndexExpr]]:
    """Returns (before, after) of each padded dimension, the first dimension first."""
    sizes = c.shape(pad)
    return [(sizes[2 * d], sizes[2 * d + 1]) for d in reversed(range(len(pad) // 2))]


def _reflected(at: ir.IndexExpr, size: ir.IndexExpr) -> ir.IndexExpr:
    """Returns the coordinate mirrored at the first and at the last element, neither of which is repeated."""
    above = ir.max(at, at * -1)
    beyond = size - 1 - above
    return size - 1 - ir.max(beyond, beyond * -1)


def _clamped(at: ir.IndexExpr, size: ir.IndexExpr) -> ir.IndexExpr:
    return ir.max(ir.min(at, size - 1), ir.IndexExpr(0))


def _padded(c: Context, x: ir.Value, pad: Sequence[Any], source: Any) -> ir.Value:
    pads = _pairs(c, pad)
    nest = c.nest(c.val.shape)
    outer = len(x.sizes) - len(pads)
    at = nest.i[:outer]
    for i, (before, _), size in zip(nest.i[outer:], pads, x.sizes[outer:], strict=True):
        at.append(source(i - before, size))
    return nest.store((nest.load(x, at), c.dtype))[0]


def _sum_of_copies(c: Context, grad: ir.Value, pad: Sequence[Any], count: Any, candidate: Any) -> ir.Value:
    """Returns the sum over the outputs that each input element was copied to.

    `count(before, after)` is the number of candidate outputs per element along a dimension. `candidate(nest, j, r,
    before, after, size)` returns the position of candidate r of element j, and whether it is a copy of the element.
    """
    pads = _pairs(c, pad)
    nest = c.nest(c.val.shape, [count(*p) for p in pads])
    outer = len(grad.sizes) - len(pads)
    at, mask = nest.i[:outer], None
    for j, r, p, size, out in zip(nest.i[outer:], nest.r, pads, c.sizes[outer:], grad.sizes[outer:], strict=True):
        position, valid = candidate(nest, j, r, *p, size)
        at.append(position)
        part = nest.inside(position, out) & valid
        mask = part if mask is None else mask & part
    return nest.reduce("sum", [nest.load(grad, at, mask)], [c.dtype])[0]


def _mirror_images(before: ir.IndexExpr, after: ir.IndexExpr) -> ir.IndexExpr:
    unpadded = before.is_const(0) and after.is_const(0)
    return ir.IndexExpr(1 if unpadded else 3)


def _mirror_image(
    nest: Nest, j: ir.IndexExpr, r: ir.IndexExpr, before: ir.IndexExpr, after: ir.IndexExpr, size: ir.IndexExpr
) -> tuple[ir.IndexExpr, Term]:
    """Returns (output position, whether it exists) of copy r of element j.

    Copy 0 is the element itself, at before + j; copy 1 is mirrored at the front, at before - j; copy 2 at the end.
    """
    if before.is_const(0) and after.is_const(0):
        return j, nest.index(j) >= 0
    is_mirrored = ir.min(r, ir.IndexExpr(1))
    position = before + j - j * is_mirrored * 2 + (size - 1) * ir.floordiv(r, ir.IndexExpr(2)) * 2
    which, element = nest.index(r), nest.index(j)
    valid = which.eq(0) | (which.eq(1) & (element > 0)) | (which.eq(2) & (element < nest.index(size - 1)))
    return position, valid


def _copies(before: ir.IndexExpr, after: ir.IndexExpr) -> ir.IndexExpr:
    zero = ir.IndexExpr(0)
    return ir.max(before, zero) + ir.max(after, zero) + 1


def _copy(
    nest: Nest, j: ir.IndexExpr, r: ir.IndexExpr, before: ir.IndexExpr, after: ir.IndexExpr, size: ir.IndexExpr
) -> tuple[ir.IndexExpr, Term]:
    """Returns (output position, whether it is a copy of element j) of candidate r.

    The candidates are the positions from `before` in front of the element's own place to `after` behind it.
    """
    own = j - ir.max(before, ir.IndexExpr(0)) + r
    return own + before, nest.index(_clamped(own, size)).eq(nest.index(j))


def _rows(spatial: int) -> None:
    reflection, replication = f"aten.reflection_pad{spatial}d", f"aten.replication_pad{spatial}d"
    lower(f"{reflection}.default")(lambda c, x, pad: _padded(c, x, pad, _reflected))
    lower(f"{replication}.default")(lambda c, x, pad: _padded(c, x, pad, _clamped))
    lower(f"{reflection}_backward.default")(
        lambda c, grad, x, pad: _sum_of_copies(c, grad, pad, _mirror_images, _mirror_image)
    )
    lower(f"{replication}_backward.default")(lambda c, grad, x, pad: _sum_of_copies(c, grad, pad, _copies, _copy))


for _spatial in (1, 2, 3):
    _rows(_spatial)
