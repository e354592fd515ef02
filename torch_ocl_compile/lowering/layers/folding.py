# torch_ocl_compile/lowering/layers/folding.py: im2col and col2im (F.unfold and F.fold); each is the other's gradient.
"""The columns are [n, c * kh * kw, oh * ow]. col2im is a gather: each pixel sums the columns that contain it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.layers.pooling import Window, all_inside, row_major, windows

aten = torch.ops.aten


def _columns(size: ir.IndexExpr, w: Window) -> ir.IndexExpr:
    """Returns the number of windows along a dimension of the given size."""
    return ir.floordiv(size + 2 * w.padding - (w.kernel - 1) * w.dilation - 1, ir.IndexExpr(w.stride)) + 1


@lower(aten.im2col.default)
def im2col(
    c: Context,
    x: ir.Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> ir.Value:
    ws = windows(kernel, stride, padding, dilation)
    *batch, channels, _, _ = x.sizes
    outs = [_columns(size, w) for size, w in zip(x.sizes[-2:], ws, strict=True)]
    taps = [ir.IndexExpr(w.kernel) for w in ws]
    nest = t.Nest(c.builder, [*batch, channels, *taps, *outs])
    at = [o * w.stride - w.padding + k * w.dilation for o, k, w in zip(nest.i[-2:], nest.i[-4:-2], ws, strict=True)]
    value = nest.load(x, [*nest.i[:-4], *at], all_inside(nest, x, at))
    return c.builder.reshape(nest.store((value, c.dtype))[0], c.sizes)


@lower(aten.col2im.default)
def col2im(
    c: Context,
    x: ir.Value,
    output_size: Any,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> ir.Value:
    ws = windows(kernel, stride, padding, dilation)
    outs = [_columns(size, w) for size, w in zip(c.sizes[-2:], ws, strict=True)]
    taps = [ir.IndexExpr(w.kernel) for w in ws]
    nest = c.nest(c.val.shape, taps)
    at, mask = [], None
    for i, k, out, w in zip(nest.i[-2:], nest.r, outs, ws, strict=True):
        reached = i + w.padding - k * w.dilation
        at.append(ir.floordiv(reached, ir.IndexExpr(w.stride)))
        part = nest.inside(at[-1], out)
        if w.stride > 1:
            part = part & nest.index(ir.mod(reached, ir.IndexExpr(w.stride))).eq(0)
        mask = part if mask is None else mask & part
    row = row_major([nest.i[-3], *nest.r], [c.sizes[-3], *taps])
    value = nest.load(x, [*nest.i[:-3], row, row_major(at, outs)], mask)
    return nest.reduce("sum", [value], [c.dtype])[0]
