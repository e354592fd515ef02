# torch_ocl_compile/decompositions/resampling.py: grid_sample and interpolation, forward and backward.
"""They are decomposed into ordinary ops.

grid_sample: each output point reads a few input elements, its taps, along each dimension. A tap has an element
index, a weight, and, for the gradient of the grid, the derivative of the weight. Nearest has one tap per dimension,
linear two, cubic four. The taps of a point are all combinations of one tap per dimension.

Antialiased interpolation: each dimension has a dense matrix [out, in] of filter weights. Interpolation and its
gradient are matrix products. Interpolation without antialiasing has PyTorch's own decomposition, and its gradient is
derived from that.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
NEAREST = 1
CUBIC = 2
ZEROS, BORDER, REFLECTION = 0, 1, 2


class Tap(NamedTuple):
    """One tap along one dimension: an input element per output point. All tensors are [n, points]."""

    element: Tensor  # Element index, int64; 0 where not valid.
    valid: Tensor
    weight: Tensor | float
    # The derivative of the weight by the grid coordinate.
    slope: Tensor | float


def _unnormalised(grid: Tensor, size: Any, corners: bool) -> tuple[Tensor, float]:
    """Returns (pixel coordinates of grid coordinates in [-1, 1], the factor between the two)."""
    if corners:
        return (grid + 1) * ((size - 1) / 2), (size - 1) / 2
    return ((grid + 1) * size - 1) / 2, size / 2


def _clipped(at: Tensor, slope: Any, size: Any) -> tuple[Tensor, Tensor]:
    inside = (at > 0) & (at < size - 1)
    # A NaN coordinate becomes 0, too.
    return torch.where(at > 0, at.clamp(max=size - 1), 0.0), torch.where(inside, slope, 0.0)


def _placed(at: Tensor, slope: Any, size: Any, padding: int, corners: bool) -> tuple[Tensor, Any]:
    """Returns (the coordinate moved inside the image as the padding mode says, its derivative by the grid coordinate)."""
    if padding == ZEROS:
        return at, slope
    if padding == REFLECTION:
        low, span = (0.0, size - 1) if corners else (-0.5, size)
        if span == 0:
            return torch.zeros_like(at), torch.zeros_like(at)
        away = (at - low).abs()
        flips = torch.floor(away / span)
        rest = away - flips * span
        even = flips % 2 == 0
        slope = torch.where((at < low) ^ ~even, -slope, slope)
        at = torch.where(even, rest, span - rest) + low
    return _clipped(at, slope, size)


def _tap(at: Tensor, size: Any, weight: Any, slope: Any) -> Tap:
    valid = (at >= 0) & (at < size)
    return Tap(torch.where(valid, at, 0.0).to(torch.int64), valid, weight, slope)


def _cubic(t: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Returns (weight, derivative) of the cubic taps at -1, 0, 1 and 2. t in [0, 1) is the distance from tap 0; A =
    -0.75."""
    a = -0.75

    def far(x: Tensor) -> tuple[Tensor, Tensor]:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, (3 * a * x - 10 * a) * x + 8 * a

    def near(x: Tensor) -> tuple[Tensor, Tensor]:
        return ((a + 2) * x - (a + 3)) * x * x + 1, (3 * (a + 2) * x - 2 * (a + 3)) * x

    def mirrored(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return pair[0], -pair[1]

    return [far(t + 1), near(t), mirrored(near(1 - t)), mirrored(far(2 - t))]


def _taps(grid: Tensor, size: Any, mode: int, padding: int, corners: bool) -> list[Tap]:
    at, slope = _unnormalised(grid, size, corners)
    # In cubic mode the padding mode applies to every tap, not to the point.
    if mode == CUBIC:
        floor = torch.floor(at)
        found = []
        for offset, (weight, rise) in enumerate(_cubic(at - floor), -1):
            moved, _ = _placed(floor + offset, 1.0, size, padding, corners)
            found.append(_tap(torch.trunc(moved), size, weight, rise * slope))
        return found
    at, slope = _placed(at, slope, size, padding, corners)
    if mode == NEAREST:
        return [_tap(torch.round(at), size, 1.0, 0.0)]
    floor = torch.floor(at)
    t = at - floor
    return [_tap(floor, size, 1 - t, -slope), _tap(floor + 1, size, t, slope)]


def _all_taps(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> list[tuple[Tap, ...]]:
    """Returns all combinations of one tap per spatial dimension.

    The grid's last dimension lists coordinates from the last spatial dimension to the first.
    """
    sizes = x.shape[2:]
    flat = grid.flatten(1, -2)  # -1 would say nothing of a batch of 0
    last = len(sizes) - 1
    per_dim = [_taps(flat[..., last - d], s, mode, padding, corners) for d, s in enumerate(sizes)]
    return list(itertools.product(*per_dim))


def _place(taps: Sequence[Tap], sizes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Returns (element index in the flattened image, mask of the points whose taps are all inside)."""
    index = functools.reduce(lambda done, d: done * sizes[d] + taps[d].element, range(1, len(taps)), taps[0].element)
    return index, functools.reduce(torch.logical_and, (tap.valid for tap in taps))


def _weight(taps: Sequence[Tap], slope_of: int = -1) -> Any:
    """Returns the product of the weights. Dimension `slope_of` contributes its derivative instead of its weight."""
    return functools.reduce(
        lambda a, b: a * b, (tap.slope if d == slope_of else tap.weight for d, tap in enumerate(taps))
    )


def _gather(x: Tensor, index: Tensor, valid: Tensor) -> Tensor:
    """Returns [n, c, points]: the elements of x [n, c, ...] at `index` [n, points], 0 where not valid."""
    n, c = x.shape[:2]
    points = index.shape[1]
    taken = x.flatten(2).gather(2, index.unsqueeze(1).expand(n, c, points))
    return torch.where(valid.unsqueeze(1), taken, 0.0)


def _rows(w: Any) -> Any:
    return w.unsqueeze(1) if isinstance(w, Tensor) else w


@decompose(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default, opmath=True)
def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    torch._check(
        grid.shape[0] == x.shape[0] and grid.shape[-1] == x.dim() - 2,
        lambda: (
            f"grid_sampler(): expected a grid of batch size {x.shape[0]} and of size {x.dim() - 2} in its last dimension, but "
            f"its shape is {tuple(grid.shape)}"
        ),
    )
    total: Any = 0.0
    for taps in _all_taps(x, grid, mode, padding, corners):
        total = total + _gather(x, *_place(taps, x.shape[2:])) * _rows(_weight(taps))
    result: Tensor = total.reshape(*x.shape[:2], *grid.shape[1:-1])
    return result


@decompose(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default, opmath=True)
def grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Sequence[bool]
) -> Any:
    """Returns the gradients of x and of the grid, None where the mask does not ask for one.

    The gradient of x is a single scatter-add of the contributions of all taps. The gradient of the grid is a sum over
    channels.
    """
    n, c = x.shape[:2]
    sizes = x.shape[2:]
    combinations = _all_taps(x, grid, mode, padding, corners)
    flat = grad.flatten(2)
    grad_x, grad_grid = None, None
    if mask[0]:
        places, parts = [], []
        for taps in combinations:
            index, valid = _place(taps, sizes)
            places.append(index)
            parts.append(torch.where(valid.unsqueeze(1), flat * _rows(_weight(taps)), 0.0))
        index = torch.cat(places, 1).unsqueeze(1)
        zeros = x.new_zeros(n, c, functools.reduce(lambda a, b: a * b, sizes))
        grad_x = zeros.scatter_add(2, index.expand(n, c, index.shape[2]), torch.cat(parts, 2)).reshape(x.shape)
    if mask[1] and mode == NEAREST:
        grad_grid = torch.zeros_like(grid)
    elif mask[1]:
        slopes: list[Any] = [0.0] * len(sizes)
        for taps in combinations:
            along = (flat * _gather(x, *_place(taps, sizes))).sum(1)
            for d in range(len(sizes)):
                slopes[d] = slopes[d] + along * _weight(taps, d)
        grad_grid = torch.stack(slopes[::-1], -1).reshape(grid.shape)
    return grad_x, grad_grid


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _keys(x: Tensor) -> Tensor:
    """Returns Keys's cubic convolution filter at x, with A = -0.5. It is 0 for |x| >= 2."""
    a, x = -0.5, x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _filter_matrix(like: Tensor, size: Any, out: Any, corners: bool, scale: float | None, taps: int) -> Tensor:
    """Returns the filter weights [out, size]; each row sums to 1. The filter is as wide as a pixel of the coarser grid."""
    step = size / out if scale is None or scale <= 0 else 1 / scale
    if corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    wide = max(step, 1.0)
    support = taps / 2 * wide
    centre = (torch.arange(out, device=like.device, dtype=like.dtype) + 0.5).unsqueeze(1) * step
    at = torch.arange(size, device=like.device, dtype=like.dtype)
    first = torch.trunc(centre - support + 0.5).clamp(min=0)
    end = torch.trunc(centre + support + 0.5).clamp(max=size)
    offset = (at - centre + 0.5) / wide
    weights = torch.where((at >= first) & (at < end), _triangle(offset) if taps == 2 else _keys(offset), 0.0)
    return weights / weights.sum(1, keepdim=True)


def _antialiased(name: str, taps: int) -> None:
    def matrices(x: Tensor, size: Any, out: Any, corners: bool, scales: Sequence[float | None]) -> list[Tensor]:
        return [_filter_matrix(x, s, o, corners, f, taps) for s, o, f in zip(size, out, scales, strict=True)]

    @decompose(getattr(aten, name).default, opmath=True)
    def forward(x: Tensor, output_size: Any, corners: bool, scale_h: Any = None, scale_w: Any = None) -> Tensor:
        values = x if x.dtype.is_floating_point else x.float()
        rows, columns = matrices(values, x.shape[2:], output_size, corners, (scale_h, scale_w))
        if x.dtype.is_floating_point:
            return rows @ (values @ columns.t())
        # The CPU also rounds integers between the two passes.
        across = (values @ columns.t()).round().clamp(0, 255)
        return (rows @ across).round().clamp(0, 255).to(x.dtype)

    @decompose(getattr(aten, f"{name}_backward").default, opmath=True)
    def backward(
        grad: Tensor, output_size: Any, input_size: Any, corners: bool, scale_h: Any = None, scale_w: Any = None
    ) -> Tensor:
        rows, columns = matrices(grad, input_size[2:], output_size, corners, (scale_h, scale_w))
        return rows.t() @ (grad @ columns)


_antialiased("_upsample_bilinear2d_aa", 2)
_antialiased("_upsample_bicubic2d_aa", 4)


def _interpolation_taps(name: str, size: Any, out: Any, corners: bool, scale: float | None, like: Tensor) -> list[Any]:
    """Returns (element, weight) of each tap along one dimension: tensors [out]. Nearest has no weight."""
    step = size / out if scale is None or scale <= 0 else 1 / scale
    if corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    at = torch.arange(out, device=like.device).to(like.dtype)
    if "nearest" in name:
        at = (at + 0.5 if "exact" in name else at) * step
        return [(at.to(torch.int64).clamp(max=size - 1), None)]
    at = at * step if corners else (at + 0.5) * step - 0.5
    if "cubic" not in name:
        at = at.clamp(min=0.0)
    low = torch.floor(at)
    t = (at - low).clamp(0.0, 1.0)
    weights = [w for w, _ in _cubic(t)] if "cubic" in name else [1 - t, t]
    first = low.to(torch.int64) - (len(weights) == 4)
    return [((first + k).clamp(0, size - 1), weight) for k, weight in enumerate(weights)]


def _interpolated(name: str) -> None:
    """Registers PyTorch's decomposition of an interpolation that has no lowering, and the gradient. In compiled graphs
    PyTorch applies the decomposition before autograd traces the gradient; outside of them both ops are called."""
    target = getattr(aten, name).default
    decompose(target)(torch._decomp.decomposition_table[target])

    @decompose(getattr(aten, f"{name}_backward").default, opmath=True)
    def backward(grad: Tensor, output_size: Any, input_size: Any, *settings: Any) -> Tensor:
        """Scatters along one dimension after the other, because the weights are products of one weight per dimension."""
        corners, scales = (False, settings) if "nearest" in name else (settings[0], settings[1:])
        for d, (size, out) in enumerate(zip(input_size[2:], output_size, strict=True)):
            taps = _interpolation_taps(name, size, out, corners, scales[d] if d < len(scales) else None, grad)
            shape = [out if i == d + 2 else 1 for i in range(grad.dim())]
            places = torch.cat([element for element, _ in taps])
            parts = [grad if weight is None else grad * weight.reshape(shape) for _, weight in taps]
            zeros = grad.new_zeros([*grad.shape[: d + 2], size, *grad.shape[d + 3 :]])
            grad = zeros.index_add(d + 2, places, torch.cat(parts, d + 2))
        return grad


for _name in (
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *(f"{kind}{d}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)),
):
    _interpolated(_name)
# Inductor's table lacks this one, so that torch.export keeps it. AOTAutograd decomposes it before it looks at the table.
decompose(aten.upsample_nearest2d.vec)(torch._decomp.decomposition_table[aten.upsample_nearest2d.vec])
