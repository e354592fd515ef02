# torch_ocl_compile/lowering/pooling.py: max, average and adaptive pooling of [.., h, w], forward and backward.
"""A pool is a reduction over its window with masked loads. Its gradient is a gather over the windows that cover a
pixel: no atomics, so the same bits on every run.

    input pixel h   covered by outputs o with  o*stride - padding <= h <= o*stride - padding + (kernel - 1)*dilation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering import term as t
from torch_ocl_compile.lowering.context import Context, ir_dtype, static_int
from torch_ocl_compile.lowering.registry import lower
from torch_ocl_compile.lowering.term import Nest, Term

aten = torch.ops.aten


@dataclass(frozen=True)
class Window:
    """Window of one spatial dimension, in elements."""

    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def covering(self) -> int:
        """How many windows can cover one pixel."""
        return -(-((self.kernel - 1) * self.dilation + 1) // self.stride)


def windows(kernel: Sequence[int], stride: Sequence[int], padding: Any = 0, dilation: Any = 1) -> list[Window]:
    def pair(v: Any) -> list[int]:
        listed = [v] if isinstance(v, int) else list(v)
        return [static_int(n, "a pooling window") for n in (listed * 2 if len(listed) == 1 else listed)]

    return [Window(*w) for w in zip(pair(kernel), pair(stride or kernel), pair(padding), pair(dilation), strict=True)]


def _both(c: Context, nest: Nest, x: ir.Value, at: Sequence[ir.IndexExpr]) -> Term:
    """The two spatial coordinates are inside x."""
    return nest.inside(at[0], x.sizes[-2]) & nest.inside(at[1], x.sizes[-1])


def _window_coords(nest: Nest, ws: Sequence[Window]) -> list[ir.IndexExpr]:
    """Input pixel of the nest's output point (last two i) and window position (r0, r1)."""
    return [i * w.stride - w.padding + r * w.dilation for i, r, w in zip(nest.i[-2:], nest.r, ws, strict=True)]


def _windowed(c: Context, shape: Sequence[Any], ws: Sequence[Window]) -> Nest:
    return c.nest(shape, [w.kernel for w in ws])


def _lowest(dtype: ir.DType) -> float | int:
    if ir.is_floating(dtype):
        return -float("inf")
    return {ir.DType.kU8: 0, ir.DType.kI8: -(2**7), ir.DType.kI16: -(2**15), ir.DType.kI32: -(2**31)}.get(
        dtype, -(2**63)
    )


def max_pool(c: Context, x: ir.Value, ws: Sequence[Window], fake: torch.Tensor) -> tuple[ir.Value, ir.Value]:
    """(largest element of each window, its position r0 * kernel_w + r1 as int64). A NaN is larger than all.
    Two reductions over the same loads: they fuse, and inference drops the second."""

    def windowed(reduction: str, dtype: ir.DType) -> ir.Value:
        nest = _windowed(c, fake.shape, ws)
        at = _window_coords(nest, ws)
        mask = _both(c, nest, x, at) if any(w.padding for w in ws) or _overhangs(x, ws, fake) else None
        value = nest.load(x, [*nest.i[:-2], *at], mask)
        if mask is not None:
            value = t.where(mask, value, _lowest(value.dtype))
        return nest.reduce(reduction, [value], [dtype])[0]

    return windowed("max", ir_dtype(fake.dtype)), windowed("argmax", ir.DType.kI64)


def _overhangs(x: ir.Value, ws: Sequence[Window], fake: torch.Tensor) -> bool:
    """With ceil_mode the last window may stick out; unknown sizes count as yes."""
    for size, out, w in zip(x.sizes[-2:], fake.shape[-2:], ws, strict=True):
        if not size.is_const() or not isinstance(out, int):
            return True
        if (out - 1) * w.stride + (w.kernel - 1) * w.dilation >= size.constant() + w.padding:
            return True
    return False


def _plane_index(offset: Term, nest: Nest, ws: Sequence[Window], width: ir.IndexExpr) -> Term:
    """Window position -> index in the input's plane, h * width + w."""
    o = offset.cast(ir.DType.kI64)
    row = t.call("floordiv", o, ws[1].kernel)
    column = o - row * ws[1].kernel
    h = nest.index(nest.i[-2] * ws[0].stride - ws[0].padding) + row * ws[0].dilation
    w = nest.index(nest.i[-1] * ws[1].stride - ws[1].padding) + column * ws[1].dilation
    return h * nest.index(width) + w


@lower(aten.max_pool2d_with_indices.default)
def max_pool2d(
    c: Context, x: ir.Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    ws = windows(kernel, stride, padding, dilation)
    largest, position = max_pool(c, x, ws, c.val[0])
    nest = c.nest(c.val[1].shape)
    plane = _plane_index(nest.load(position, nest.i), nest, ws, x.sizes[-1])
    return largest, nest.store((plane, ir.DType.kI64))[0]


@lower("prims._low_memory_max_pool_with_offsets.default")
def low_memory_max_pool(
    c: Context, x: ir.Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Any:
    """Position inside the window as int8: an eighth of an index to keep for backward."""
    largest, position = max_pool(c, x, windows(kernel, stride, padding, dilation), c.val[0])
    return largest, c.cast(position, ir.DType.kI8)


@lower("prims._low_memory_max_pool_offsets_to_indices.default")
def low_memory_indices(
    c: Context, offsets: ir.Value, kernel: Any, input_size: Any, stride: Any, padding: Any, dilation: Any
) -> ir.Value:
    nest = c.nest(c.val.shape)
    ws = windows(kernel, stride, padding, dilation)
    plane = _plane_index(nest.load(offsets, nest.i), nest, ws, c.size(input_size[-1]))
    return nest.store((plane, ir.DType.kI64))[0]


def _covering(nest: Nest, ws: Sequence[Window]) -> tuple[list[ir.IndexExpr], list[ir.IndexExpr]]:
    """For input pixel (last two i) and candidate r: the output o and pixel's distance from o's window start."""
    outs, distances = [], []
    for i, r, w in zip(nest.i[-2:], nest.r, ws, strict=True):
        out = ir.floordiv(i + w.padding, ir.IndexExpr(w.stride)) - r
        outs.append(out)
        distances.append(i + w.padding - out * w.stride)
    return outs, distances


def _reached(nest: Nest, distances: Sequence[ir.IndexExpr], ws: Sequence[Window]) -> Term | None:
    """The pixel lies on a position of the window; None where that is so for every candidate."""
    mask: Term | None = None
    for d, w in zip(distances, ws, strict=True):
        parts = []
        if w.covering * w.stride > (w.kernel - 1) * w.dilation + 1:
            parts.append(nest.index(d) < nest.index(w.kernel * w.dilation))
        if w.dilation > 1:
            parts.append(nest.index(ir.mod(d, ir.IndexExpr(w.dilation))).eq(0))
        for part in parts:
            mask = part if mask is None else mask & part
    return mask


def _gather_windows(
    c: Context, grad: ir.Value, ws: Sequence[Window], shape: Sequence[Any]
) -> tuple[Nest, Any, Any, Term]:
    nest = c.nest(shape, [w.covering for w in ws])
    outs, distances = _covering(nest, ws)
    mask = _both(c, nest, grad, outs)
    reached = _reached(nest, distances, ws)
    return nest, outs, distances, mask if reached is None else mask & reached


def max_pool_backward(
    c: Context, grad: ir.Value, positions: ir.Value, is_offset: bool, ws: Sequence[Window], fake: torch.Tensor
) -> ir.Value:
    """Each pixel adds the gradients of the windows whose maximum it was. `positions`: indices in the plane, or offsets
    inside the window."""
    nest, outs, distances, mask = _gather_windows(c, grad, ws, fake.shape)
    at = [*nest.i[:-2], *outs]
    if is_offset:
        rows = ir.floordiv(distances[0], ir.IndexExpr(ws[0].dilation))
        columns = ir.floordiv(distances[1], ir.IndexExpr(ws[1].dilation))
        mine = rows * ws[1].kernel + columns
    else:
        mine = nest.i[-2] * c.size(fake.shape[-1]) + nest.i[-1]
    chosen = nest.load(positions, at, mask).cast(ir.DType.kI64).eq(nest.index(mine))
    value = t.where(mask & chosen, nest.load(grad, at, mask), 0)
    return nest.reduce("sum", [value], [ir_dtype(fake.dtype)])[0]


@lower(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(
    c: Context,
    grad: ir.Value,
    x: ir.Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: bool,
    indices: ir.Value,
) -> ir.Value:
    return max_pool_backward(c, grad, indices, False, windows(kernel, stride, padding, dilation), c.val)


@lower("ocl.max_pool2d_backward.default")
def own_max_pool2d_backward(
    c: Context, grad: ir.Value, offsets: ir.Value, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> ir.Value:
    return max_pool_backward(c, grad, offsets, True, windows(kernel, stride, padding, dilation), c.val)


def _divisor(
    c: Context,
    nest: Nest,
    outs: Sequence[ir.IndexExpr],
    x_sizes: Sequence[ir.IndexExpr],
    ws: Sequence[Window],
    include_pad: bool,
    override: int | None,
) -> Term | float:
    """How many elements output `outs` averages over; a number where it is the same everywhere."""
    if override:
        return float(override)
    if all(w.padding == 0 for w in ws) and not include_pad:
        include_pad = True  # the two rules differ only in the padding; overhang is clipped by both
    sides: list[ir.IndexExpr] = []
    for o, size, w in zip(outs, x_sizes[-2:], ws, strict=True):
        start = o * w.stride - w.padding
        end = ir.min(start + w.kernel, size + w.padding)
        if not include_pad:
            start, end = ir.max(start, ir.IndexExpr(0)), ir.min(end, size)
        sides.append(end - start)
    return nest.index(sides[0] * sides[1]).cast(ir.DType.kF32)


@lower(aten.avg_pool2d.default)
def avg_pool2d(
    c: Context,
    x: ir.Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> ir.Value:
    ws = windows(kernel, stride, padding)
    nest = _windowed(c, c.val.shape, ws)
    at = _window_coords(nest, ws)
    clipped = any(w.padding for w in ws) or _overhangs(x, ws, c.val)
    mask = _both(c, nest, x, at) if clipped else None
    total = nest.reduce("sum", [nest.load(x, [*nest.i[:-2], *at], mask)], [ir.compute_type(c.dtype)])[0]
    after = c.nest(c.val.shape)
    value = after.load(total, after.i)
    if divisor_override or not clipped:
        divisor: Term | float = float(divisor_override or ws[0].kernel * ws[1].kernel)
    else:
        divisor = _divisor(c, after, after.i[-2:], x.sizes, ws, count_include_pad, None)
    return after.store((value / divisor, c.dtype))[0]


@lower(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    c: Context,
    grad: ir.Value,
    x: ir.Value,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> ir.Value:
    ws = windows(kernel, stride, padding)
    nest, outs, _, mask = _gather_windows(c, grad, ws, c.val.shape)
    value = nest.load(grad, [*nest.i[:-2], *outs], mask)
    divisor = _divisor(c, nest, outs, x.sizes, ws, count_include_pad, divisor_override)
    share = t.where(mask, value / (divisor.cast(value.dtype) if isinstance(divisor, Term) else divisor), 0.0)
    return nest.reduce("sum", [share], [c.dtype])[0]


def _adaptive_range(o: ir.IndexExpr, size: ir.IndexExpr, out: ir.IndexExpr) -> tuple[ir.IndexExpr, ir.IndexExpr]:
    """Output o averages [o * size // out, ceil((o + 1) * size / out))."""
    return ir.floordiv(o * size, out), ir.ceildiv((o + 1) * size, out)


def _longest(size: int, out: int) -> int:
    return max(-(-(o + 1) * size // out) - o * size // out for o in range(out))


@lower(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(c: Context, x: ir.Value, output_size: Any) -> ir.Value:
    ins, outs = x.sizes[-2:], c.sizes[-2:]
    longest = [
        ir.IndexExpr(_longest(i.constant(), o.constant())) if i.is_const() and o.is_const() else ir.ceildiv(i, o) + 1
        for i, o in zip(ins, outs, strict=True)
    ]
    nest = c.nest(c.val.shape, longest)
    at, mask, uniform = [], None, True
    for i, r, size, out in zip(nest.i[-2:], nest.r, ins, outs, strict=True):
        start, end = _adaptive_range(i, size, out)
        at.append(start + r)
        if not (size.is_const() and out.is_const() and size.constant() % out.constant() == 0):
            uniform = False
            part = nest.index(start + r) < nest.index(end)
            mask = part if mask is None else mask & part
    total = nest.reduce("sum", [nest.load(x, [*nest.i[:-2], *at], mask)], [ir.compute_type(c.dtype)])[0]
    after = c.nest(c.val.shape)
    value = after.load(total, after.i)
    if uniform:
        return after.store((value / float(longest[0].constant() * longest[1].constant()), c.dtype))[0]
    return after.store((value / _adaptive_count(after, after.i[-2:], ins, outs).cast(value.dtype), c.dtype))[0]


def _adaptive_count(
    nest: Nest, at: Sequence[ir.IndexExpr], ins: Sequence[ir.IndexExpr], outs: Sequence[ir.IndexExpr]
) -> Term:
    sides = []
    for i, size, out in zip(at, ins, outs, strict=True):
        start, end = _adaptive_range(i, size, out)
        sides.append(end - start)
    return nest.index(sides[0] * sides[1])


@lower(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(c: Context, grad: ir.Value, x: ir.Value) -> ir.Value:
    """Pixel h is averaged into outputs [h * out // size, ceil((h + 1) * out / size))."""
    ins, outs = x.sizes[-2:], grad.sizes[-2:]
    nest = c.nest(c.val.shape, [ir.ceildiv(o, i) + 1 for i, o in zip(ins, outs, strict=True)])
    at, mask = [], None
    for h, r, size, out in zip(nest.i[-2:], nest.r, ins, outs, strict=True):
        first, last = _adaptive_range(h, out, size)
        at.append(first + r)
        part = nest.index(first + r) < nest.index(last)
        mask = part if mask is None else mask & part
    assert mask is not None
    value = nest.load(grad, [*nest.i[:-2], *at], mask)
    share = t.where(mask, value / _adaptive_count(nest, at, ins, outs).cast(value.dtype), 0.0)
    return nest.reduce("sum", [share], [c.dtype])[0]
