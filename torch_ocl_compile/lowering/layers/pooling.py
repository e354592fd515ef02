# torch_ocl_compile/lowering/layers/pooling.py: max and average pooling of one to three dimensions, forward and backward.
"""A pool is a reduction over its window with masked loads. Its gradient is a gather over the windows that cover an
input element, without atomics, so that results are bitwise the same in every run.

    input h is covered by the outputs o with
    o * stride - padding <= h <= o * stride - padding + (kernel - 1) * dilation
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype, static_int
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term

aten = torch.ops.aten


@dataclass(frozen=True)
class Window:
    """The window of one spatial dimension; all members are numbers of elements."""

    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def covering(self) -> int:
        """Returns the largest number of windows that cover one input element."""
        return -(-((self.kernel - 1) * self.dilation + 1) // self.stride)


def windows(
    kernel: Sequence[int], stride: Sequence[int], padding: Any = 0, dilation: Any = 1, spatial: int = 2
) -> list[Window]:
    """Returns one window per spatial dimension. A single number stands for all dimensions."""

    def each(v: Any) -> list[int]:
        listed = [v] if isinstance(v, int) else list(v)
        return [static_int(n, "a pooling window") for n in (listed * spatial if len(listed) == 1 else listed)]

    return [Window(*w) for w in zip(each(kernel), each(stride or kernel), each(padding), each(dilation), strict=True)]


def all_inside(nest: Nest, x: ir.Value, at: Sequence[ir.IndexExpr]) -> Term:
    """Returns whether all spatial coordinates are inside x."""
    parts = [nest.inside(a, size) for a, size in zip(at, x.sizes[-len(at) :], strict=True)]
    return functools.reduce(lambda a, b: a & b, parts)


def _window_coords(nest: Nest, ws: Sequence[Window]) -> list[ir.IndexExpr]:
    """Returns the input coordinates of window position r of the output element at the nest's last coordinates i."""
    spatial = nest.i[-len(ws) :]
    return [i * w.stride - w.padding + r * w.dilation for i, r, w in zip(spatial, nest.r, ws, strict=True)]


def _windowed(c: Context, shape: Sequence[Any], ws: Sequence[Window]) -> Nest:
    return c.nest(shape, [w.kernel for w in ws])


def _lowest(dtype: ir.DType) -> float | int:
    if ir.is_floating(dtype):
        return -float("inf")
    return {ir.DType.kU8: 0, ir.DType.kI8: -(2**7), ir.DType.kI16: -(2**15), ir.DType.kI32: -(2**31)}.get(
        dtype, -(2**63)
    )


def max_pool(c: Context, x: ir.Value, ws: Sequence[Window], fake: torch.Tensor) -> tuple[ir.Value, ir.Value]:
    """Returns (the largest element of each window, its row-major position in the window as int64). NaN counts as
    largest.

    Both are reductions over the same loads. They are fused, and inference drops the second.
    """

    def window() -> tuple[Nest, Term, Term | None]:
        nest = _windowed(c, fake.shape, ws)
        at = _window_coords(nest, ws)
        mask = all_inside(nest, x, at) if any(w.padding for w in ws) or _overhangs(x, ws, fake) else None
        value = nest.load(x, [*nest.i[: -len(ws)], *at], mask)
        return nest, value if mask is None else t.where(mask, value, _lowest(value.dtype)), mask

    nest, value, _ = window()
    return nest.reduce("max", [value], [ir_dtype(fake.dtype)])[0], position_of_largest(c, *window())


def position_of_largest(c: Context, nest: Nest, value: Term, mask: Term | None) -> ir.Value:
    """Returns the row-major position of the largest element within its window, int64, as PyTorch defines it.

    Of equal elements the first counts, of several NaN the last. An element that `mask` leaves out never counts, even
    if all others are as small as the value that stands in for it.
    """
    position = nest.index(row_major(nest.r, nest.reduce_sizes))
    if mask is not None:
        position = t.where(mask, position, position + nest.index(ir.product(nest.reduce_sizes)))
    if ir.is_floating(value.dtype):
        # The smaller of two positions wins, so the positions of NaN are negated.
        position = t.where(value.ne(value), -position - 1, position)
    found = nest.reduce("argmax", [value, position], [ir.DType.kI64])[0]
    after = Nest(c.builder, nest.sizes)
    place = after.load(found, after.i)
    return after.store((t.where(place < 0, -place - 1, place), ir.DType.kI64))[0]


def _overhangs(x: ir.Value, ws: Sequence[Window], fake: torch.Tensor) -> bool:
    """Returns whether the last window may reach past the input and its padding (ceil_mode). Symbolic sizes count as
    yes."""
    for size, out, w in zip(x.sizes[-len(ws) :], fake.shape[-len(ws) :], ws, strict=True):
        if not size.is_const() or not isinstance(out, int):
            return True
        if (out - 1) * w.stride + (w.kernel - 1) * w.dilation >= size.constant() + w.padding:
            return True
    return False


def _plane_index(offset: Term, nest: Nest, ws: Sequence[Window], sizes: Sequence[ir.IndexExpr]) -> Term:
    """Converts a position within the window to a row-major index in the spatial dimensions `sizes` of the input."""
    left = offset.cast(ir.DType.kI64)
    plane: Term | None = None
    stride = ir.IndexExpr(1)
    for d in reversed(range(len(ws))):
        w = ws[d]
        above = t.call("floordiv", left, w.kernel) if d else nest.constant(0, ir.DType.kI64)
        along = nest.index(nest.i[d - len(ws)] * w.stride - w.padding) + (left - above * w.kernel) * w.dilation
        part = along * nest.index(stride)
        plane = part if plane is None else plane + part
        left, stride = above, stride * sizes[d]
    assert plane is not None
    return plane


@lower(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool_with_indices(
    c: Context, x: ir.Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    ws = windows(kernel, stride, padding, dilation, _spatial(c))
    largest, position = max_pool(c, x, ws, c.val[0])
    nest = c.nest(c.val[1].shape)
    plane = _plane_index(nest.load(position, nest.i), nest, ws, x.sizes[-len(ws) :])
    return largest, nest.store((plane, ir.DType.kI64))[0]


def _spatial(c: Context) -> int:
    """Returns 3 for ops on volumes, else 2. It looks at the op's name, because an input may lack the batch dimension."""
    assert c.node is not None
    return 3 if "3d" in str(c.node.target) else 2


@lower("prims._low_memory_max_pool_with_offsets.default")
def low_memory_max_pool(
    c: Context, x: ir.Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Any:
    """Computes max pooling. The position in the window is kept as int8, an eighth of the size of an index."""
    ws = windows(kernel, stride, padding, dilation, len(kernel))
    largest, position = max_pool(c, x, ws, c.val[0])
    return largest, c.cast(position, ir.DType.kI8)


@lower("prims._low_memory_max_pool_offsets_to_indices.default")
def low_memory_indices(
    c: Context, offsets: ir.Value, kernel: Any, input_size: Any, stride: Any, padding: Any, dilation: Any
) -> ir.Value:
    nest = c.nest(c.val.shape)
    ws = windows(kernel, stride, padding, dilation, len(kernel))
    plane = _plane_index(nest.load(offsets, nest.i), nest, ws, c.shape(input_size)[-len(ws) :])
    return nest.store((plane, ir.DType.kI64))[0]


def _covering(nest: Nest, ws: Sequence[Window]) -> tuple[list[ir.IndexExpr], list[ir.IndexExpr]]:
    """Returns the outputs that may cover the input element at the nest's last coordinates i, one per reduction index r.

    Also returns the distance of the input element from the start of each output's window.
    """
    outs, distances = [], []
    for i, r, w in zip(nest.i[-len(ws) :], nest.r, ws, strict=True):
        out = ir.floordiv(i + w.padding, ir.IndexExpr(w.stride)) - r
        outs.append(out)
        distances.append(i + w.padding - out * w.stride)
    return outs, distances


def _reached(nest: Nest, distances: Sequence[ir.IndexExpr], ws: Sequence[Window]) -> Term | None:
    """Returns whether the input element lies on a position of the window; None if it does for every candidate."""
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
    mask = all_inside(nest, grad, outs)
    reached = _reached(nest, distances, ws)
    return nest, outs, distances, mask if reached is None else mask & reached


def max_pool_backward(
    c: Context, grad: ir.Value, positions: ir.Value, is_offset: bool, ws: Sequence[Window], fake: torch.Tensor
) -> ir.Value:
    """Returns the gradient of the input: each element sums the gradients of the windows whose maximum it is.

    `positions` are indices in the input's spatial dimensions, or, if `is_offset`, positions within the window.
    """
    nest, outs, distances, mask = _gather_windows(c, grad, ws, fake.shape)
    at = [*nest.i[: -len(ws)], *outs]
    if is_offset:
        steps = [ir.floordiv(d, ir.IndexExpr(w.dilation)) for d, w in zip(distances, ws, strict=True)]
        mine = row_major(steps, [ir.IndexExpr(w.kernel) for w in ws])
    else:
        mine = row_major(nest.i[-len(ws) :], c.shape(fake.shape)[-len(ws) :])
    chosen = nest.load(positions, at, mask).cast(ir.DType.kI64).eq(nest.index(mine))
    value = t.where(mask & chosen, nest.load(grad, at, mask), 0)
    return nest.reduce("sum", [value], [ir_dtype(fake.dtype)])[0]


def row_major(at: Sequence[ir.IndexExpr], sizes: Sequence[ir.IndexExpr]) -> ir.IndexExpr:
    """Returns the row-major position of the coordinates `at` in an array of the given sizes."""
    return functools.reduce(lambda done, d: done * sizes[d] + at[d], range(len(at)), ir.IndexExpr(0))


@lower(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
def max_pool_with_indices_backward(
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
    ws = windows(kernel, stride, padding, dilation, _spatial(c))
    return max_pool_backward(c, grad, indices, False, ws, c.val)


@lower("ocl.max_pool_backward.default")
def own_max_pool_backward(
    c: Context, grad: ir.Value, offsets: ir.Value, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> ir.Value:
    ws = windows(kernel, stride, padding, dilation, len(kernel))
    return max_pool_backward(c, grad, offsets, True, ws, c.val)


def _divisor(
    c: Context,
    nest: Nest,
    outs: Sequence[ir.IndexExpr],
    x_sizes: Sequence[ir.IndexExpr],
    ws: Sequence[Window],
    include_pad: bool,
    override: int | None,
) -> Term | float:
    """Returns the number of elements that output `outs` averages over; a Python number if it is the same everywhere."""
    if override:
        return float(override)
    if all(w.padding == 0 for w in ws) and not include_pad:
        # The two rules differ only in the padding. Both leave out elements past the padded input.
        include_pad = True
    sides: list[ir.IndexExpr] = []
    for o, size, w in zip(outs, x_sizes[-len(ws) :], ws, strict=True):
        start = o * w.stride - w.padding
        end = ir.min(start + w.kernel, size + w.padding)
        if not include_pad:
            start, end = ir.max(start, ir.IndexExpr(0)), ir.min(end, size)
        sides.append(end - start)
    return nest.index(ir.product(sides)).cast(ir.DType.kF32)


@lower(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    c: Context,
    x: ir.Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> ir.Value:
    ws = windows(kernel, stride, padding, spatial=_spatial(c))
    nest = _windowed(c, c.val.shape, ws)
    at = _window_coords(nest, ws)
    clipped = any(w.padding for w in ws) or _overhangs(x, ws, c.val)
    mask = all_inside(nest, x, at) if clipped else None
    total = nest.reduce("sum", [nest.load(x, [*nest.i[: -len(ws)], *at], mask)], [ir.compute_type(c.dtype)])[0]
    after = c.nest(c.val.shape)
    value = after.load(total, after.i)
    if divisor_override or not clipped:
        divisor: Term | float = float(divisor_override or math.prod(w.kernel for w in ws))
    else:
        divisor = _divisor(c, after, after.i[-len(ws) :], x.sizes, ws, count_include_pad, None)
    return after.store((value / divisor, c.dtype))[0]


@lower(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def avg_pool_backward(
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
    ws = windows(kernel, stride, padding, spatial=_spatial(c))
    nest, outs, _, mask = _gather_windows(c, grad, ws, c.val.shape)
    value = nest.load(grad, [*nest.i[: -len(ws)], *outs], mask)
    divisor = _divisor(c, nest, outs, x.sizes, ws, count_include_pad, divisor_override)
    share = t.where(mask, value / (divisor.cast(value.dtype) if isinstance(divisor, Term) else divisor), 0.0)
    return nest.reduce("sum", [share], [c.dtype])[0]
