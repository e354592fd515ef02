# torch_ocl_compile/lowering/products/convolution.py: convolutions of one to three dimensions, transposed and grouped; gradients.
"""The kernels are two-dimensional. A one-dimensional convolution gains a dimension of size 1 in front. For a
three-dimensional one, the filter positions along the first spatial dimension are folded into the channels:

    x [n, c, d, h, w]        ->  depth windows [n * od, c * kd, h, w]            (a copy, or a view if kd is 1)
    w [k, c / g, kd, r, s]   ->  the same memory, [k, c / g * kd, r, s]

The forward result and the weight gradient are then computed as for a two-dimensional convolution. The data gradient is
computed so too, and then summed over the filter positions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.products.planes import are_multiplied, planar_products

aten = torch.ops.aten
Kind = ir.ConvolveKind


@dataclass(frozen=True)
class Settings:
    """The settings of a convolution. Lists have one entry per spatial dimension."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def spatial(self) -> int:
        return len(self.stride)

    def attributes(self, kind: ir.ConvolveKind) -> ir.ConvolveAttrs:
        """Returns the attributes of a two-dimensional convolution node."""
        result = ir.ConvolveAttrs()
        result.kind = kind
        result.stride, result.padding, result.dilation = list(self.stride), list(self.padding), list(self.dilation)
        result.groups = self.groups
        return result

    def plane(self) -> Settings:
        """Returns the settings without the first spatial dimension."""
        return replace(self, stride=self.stride[1:], padding=self.padding[1:], dilation=self.dilation[1:])

    def line(self) -> Settings:
        """Returns the settings of a one-dimensional convolution with a dimension of size 1 in front."""
        return Settings((1, *self.stride), (0, *self.padding), (1, *self.dilation), self.groups)


def settings_of(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int, spatial: int
) -> Settings:
    """Returns the settings; a list of one number stands for all spatial dimensions."""

    def each(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * spatial if len(values) == 1 else tuple(values)

    return Settings(each(stride), each(padding), each(dilation), groups)


def convolve(
    c: Context,
    kind: ir.ConvolveKind,
    a: ir.Value,
    b: ir.Value,
    settings: Settings,
    sizes: list[ir.IndexExpr],
    dtype: ir.DType,
) -> ir.Value:
    """Builds a convolution in one to three spatial dimensions.

    `a` and `b` are the operands that ir.ConvolveKind defines for `kind`; `sizes` is the shape of the result.
    """
    if any(s.is_const(0) for s in [*a.sizes, *b.sizes, *sizes]):
        # There is nothing to multiply, and the code below divides by sizes.
        return c.constant(0.0, dtype, sizes)
    if settings.spatial == 2:
        attributes = settings.attributes(kind)
        if are_multiplied(c, a, b, attributes, sizes):
            return planar_products(c, kind, a, b, sizes, dtype)
        return c.builder.convolve(a, b, attributes, sizes, dtype)
    if settings.spatial == 1:
        a, b = c.builder.unsqueeze(a, 2), c.builder.unsqueeze(b, 2)
        planar = [*sizes[:2], ir.IndexExpr(1), sizes[2]]
        return c.builder.squeeze(convolve(c, kind, a, b, settings.line(), planar, dtype), [2])
    if settings.spatial != 3:
        raise NotImplementedError(f"a convolution of {settings.spatial} dimensions")
    plane = settings.plane()
    if kind == Kind.kForward:
        x = windows_of_depth(c, a, b.sizes[2], sizes[2], settings)
        flat = [sizes[0] * sizes[2], sizes[1], *sizes[3:]]
        return _unfolded(c, convolve(c, kind, x, _folded_filter(c, b), plane, flat, dtype), sizes[0])
    if kind == Kind.kWeight:
        x = windows_of_depth(c, a, sizes[2], b.sizes[2], settings)
        flat = [sizes[0], sizes[1] * sizes[2], *sizes[3:]]
        return c.builder.reshape(convolve(c, kind, x, _folded(c, b), plane, flat, dtype), sizes)
    flat = [a.sizes[0] * a.sizes[2], sizes[1] * b.sizes[2], *sizes[3:]]
    wide = ir.compute_type(dtype)
    pieces = convolve(c, kind, _folded(c, a), _folded_filter(c, b), plane, flat, wide)
    return _sum_of_taps(c, pieces, a.sizes[2], b.sizes[2], settings, sizes, dtype)


def _folded(c: Context, x: ir.Value) -> ir.Value:
    """Returns x [n, c, d, h, w] as a view [n * d, c, h, w]."""
    n, channels, depth, *plane = x.sizes
    return c.builder.reshape(c.builder.permute(x, [0, 2, 1, 3, 4]), [n * depth, channels, *plane])


def _unfolded(c: Context, x: ir.Value, n: ir.IndexExpr) -> ir.Value:
    """Returns x [n * d, c, h, w] as a view [n, c, d, h, w]."""
    depth = ir.floordiv(x.sizes[0], n)
    return c.builder.permute(c.builder.reshape(x, [n, depth, *x.sizes[1:]]), [0, 2, 1, 3, 4])


def _folded_filter(c: Context, w: ir.Value) -> ir.Value:
    """Returns w [k, c, kd, r, s] as a view [k, c * kd, r, s]."""
    return c.builder.reshape(w, [w.sizes[0], w.sizes[1] * w.sizes[2], *w.sizes[3:]])


def windows_of_depth(c: Context, x: ir.Value, taps: ir.IndexExpr, out: ir.IndexExpr, settings: Settings) -> ir.Value:
    """Returns [n * out, c * taps, h, w]: for each output depth, the input depths that it reads from x [n, c, d, h, w]."""
    stride, padding, dilation = settings.stride[0], settings.padding[0], settings.dilation[0]
    if taps.is_const(1) and stride == 1 and padding == 0:
        return _folded(c, x)
    n, channels, depth, *plane = x.sizes
    nest = t.Nest(c.builder, [n, out, channels, taps, *plane])
    at = nest.i[1] * stride - padding + nest.i[3] * dilation
    value = nest.load(x, [nest.i[0], nest.i[2], at, *nest.i[4:]], nest.inside(at, depth))
    copied = nest.store((value, x.dtype))[0]
    return c.builder.reshape(copied, [n * out, channels * taps, *plane])


def _sum_of_taps(
    c: Context,
    pieces: ir.Value,
    out: ir.IndexExpr,
    taps: ir.IndexExpr,
    settings: Settings,
    sizes: list[ir.IndexExpr],
    dtype: ir.DType,
) -> ir.Value:
    """Returns [n, c, d, h, w] from the gradient of the depth windows, [n * out, c * taps, h, w].

    Each input depth sums the gradients of all depth windows that contain it.
    """
    stride, padding, dilation = settings.stride[0], settings.padding[0], settings.dilation[0]
    nest = t.Nest(c.builder, sizes, [taps])
    n, channel, depth, *plane = nest.i
    reached = depth + padding - nest.r[0] * dilation
    source = ir.floordiv(reached, ir.IndexExpr(stride))
    mask = nest.inside(source, out)
    if stride > 1:
        mask = mask & nest.index(ir.mod(reached, ir.IndexExpr(stride))).eq(0)
    value = nest.load(pieces, [n * out + source, channel * taps + nest.r[0], *plane], mask)
    return nest.reduce("sum", [value], [dtype])[0]


def integer_convolution(c: Context, x: ir.Value, w: ir.Value, settings: Settings, transposed: bool) -> ir.Value:
    """Convolves integers by a plain reduction, since the convolution kernels take floats only. The filter is
    [k, c / groups, ...], and [c, k / groups, ...] if transposed."""
    if any(s.is_const(0) for s in [*x.sizes, *w.sizes, *c.sizes]):
        return c.constant(0, c.dtype, c.sizes)
    groups = ir.IndexExpr(settings.groups)
    inputs, outputs = ir.floordiv(x.sizes[1], groups), ir.floordiv(c.sizes[1], groups)
    nest = t.Nest(c.builder, c.sizes, [inputs, *w.sizes[2:]])
    n, k, *out = nest.i
    channel = ir.floordiv(k, outputs) * inputs + nest.r[0]
    at, masks = [], []
    for i, r, stride, padding, dilation, size in zip(
        out, nest.r[1:], settings.stride, settings.padding, settings.dilation, x.sizes[2:], strict=True
    ):
        if transposed:
            reached = i + padding - r * dilation
            at.append(ir.floordiv(reached, ir.IndexExpr(stride)))
            masks.append(nest.index(ir.mod(reached, ir.IndexExpr(stride))).eq(0))
        else:
            at.append(i * stride - padding + r * dilation)
        masks.append(nest.inside(at[-1], size))
    place = [channel, ir.mod(k, outputs)] if transposed else [k, nest.r[0]]
    value = nest.load(x, [n, channel, *at], functools.reduce(operator.and_, masks))
    product = value.cast(c.dtype) * nest.load(w, [*place, *nest.r[1:]]).cast(c.dtype)
    return nest.reduce("sum", [product], [c.dtype])[0]


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
    """Lowers a convolution. A transposed convolution is computed as the data gradient of the convolution that it
    transposes. One with a bias is rounded to 16 bits once, after the bias is added.
    """
    spatial = len(x.sizes) - 2
    settings = settings_of(stride, padding, dilation, groups, spatial)
    if ir.is_floating(c.dtype):
        dtype = ir.compute_type(c.dtype) if bias else c.dtype
        y = convolve(c, Kind.kData if transposed else Kind.kForward, x, w, settings, c.sizes, dtype)
    else:
        y = integer_convolution(c, x, w, settings, transposed)
    if bias is None:
        return y
    column = c.builder.reshape(bias, [bias.sizes[0], *[ir.IndexExpr(1)] * spatial])
    return c.pointwise(lambda a, b: a + b, y, column)


@lower(aten.convolution_backward.default, "aten.convolution_backward_overrideable.default")
def convolution_backward(c: Context, grad: ir.Value, x: ir.Value, w: ir.Value, *rest: Any) -> Any:
    """Returns the gradients of x, of the weight and of the bias, None where the mask does not ask for one."""
    stride, padding, dilation, transposed, _, groups, mask = rest[-7:]
    settings = settings_of(stride, padding, dilation, groups, len(x.sizes) - 2)

    def run(kind: ir.ConvolveKind, a: ir.Value, b: ir.Value, position: int) -> ir.Value | None:
        fake = c.val[position]
        if not mask[position] or fake is None:
            return None
        return convolve(c, kind, a, b, settings, c.shape(fake.shape), ir_dtype(fake.dtype))

    gx = run(Kind.kForward if transposed else Kind.kData, grad, w, 0)
    # The weight gradient of a transposed convolution is the weight gradient of the convolution that maps grad to x.
    gw = run(Kind.kWeight, grad, x, 1) if transposed else run(Kind.kWeight, x, grad, 1)
    gb = None
    if mask[2]:
        gb = c.builder.reduce("sum", grad, [0, *range(2, len(grad.sizes))], False, grad.dtype)[0]
    return gx, gw, gb
