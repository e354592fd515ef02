# torch_ocl_compile/decompositions/histogram.py: histograms in one and more dimensions.
"""A binary search among the edges finds the bin of each coordinate. Points outside of all bins, and NaN, go to one extra bin, which is
cut off. A bin contains its left edge but not its right one; the last bin of a dimension contains both.

PyTorch reads the data to check that the range is finite. Outside of compiled functions csrc/torch/checked_ops.cpp does this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor


def _edges(x: Tensor, bins: int, low: Any, high: Any) -> Tensor:
    """Returns bins + 1 evenly spaced numbers. Each half is computed from its end, as in torch.linspace."""
    step = (high - low) / bins
    i = torch.arange(bins + 1, device=x.device)
    return torch.where(i < (bins + 1) // 2, low + step * i, high - step * (bins - i)).to(x.dtype)


def _even_edges(points: Tensor, bins: Sequence[int], span: Sequence[float] | None) -> list[Tensor] | None:
    """Returns the edges of each dimension of points [n, dimensions]. None if PyTorch refuses the arguments."""
    dimensions = points.shape[1]
    if len(bins) != dimensions or any(b <= 0 for b in bins):
        return None
    if span is None and points.shape[0] == 0:
        span = [0.0, 1.0] * dimensions
    if span is None:
        lows, highs = points.amin(0), points.amax(0)
        flat = lows == highs
        lows, highs = torch.where(flat, lows - 0.5, lows), torch.where(flat, highs + 0.5, highs)
        return [_edges(points, b, lows[d], highs[d]) for d, b in enumerate(bins)]
    pairs = list(zip(span[::2], span[1::2], strict=False))
    if len(span) != 2 * dimensions or not all(-math.inf < low <= high < math.inf for low, high in pairs):
        return None
    pairs = [(low - 0.5, high + 0.5) if low == high else (low, high) for low, high in pairs]
    return [_edges(points, b, low, high) for b, (low, high) in zip(bins, pairs, strict=True)]


def _counted(points: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Any:
    """Returns the sum of the weights of the points in each bin."""
    wrong = any(e.dim() != 1 or e.shape[0] < 2 or e.dtype != points.dtype for e in edges)
    if wrong or len(edges) != points.shape[1] or not points.dtype.is_floating_point:
        return NotImplemented
    if weight is None:
        weight = torch.ones(points.shape[:1], dtype=points.dtype, device=points.device)
    sizes = [e.shape[0] - 1 for e in edges]
    place = torch.zeros(points.shape[:1], dtype=torch.int64, device=points.device)
    inside = torch.ones(points.shape[:1], dtype=torch.bool, device=points.device)
    for d, e in enumerate(edges):
        at = points[:, d].contiguous()
        inside = inside & (at >= e[0]) & (at <= e[-1])
        place = place * sizes[d] + (torch.searchsorted(e.contiguous(), at, right=True) - 1).clamp(0, sizes[d] - 1)
    bins = math.prod(sizes)
    made = torch.zeros(bins + 1, dtype=points.dtype, device=points.device)
    made = made.scatter_add(0, torch.where(inside, place, bins), weight.reshape(-1))[:bins].reshape(sizes)
    if density:
        made = made / made.sum()
        for d, e in enumerate(edges):
            made = made / e.diff().reshape([-1 if k == d else 1 for k in range(len(sizes))])
    return made.clone()


def _fits(weight: Tensor | None, x: Tensor, shape: Sequence[Any]) -> bool:
    return weight is None or (weight.dtype == x.dtype and list(weight.shape or (1,)) == list(shape))


@decompose(aten.histogram.bin_ct, aten.histogram.bins_tensor)
def histogram(x: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """Returns (histogram, edges). `bins`: the number of bins, or the edges."""
    points = x.reshape(-1, 1)
    if not _fits(weight, x, x.shape or (1,)):
        return NotImplemented
    if isinstance(bins, Tensor):
        made = _counted(points, [bins], weight, density)
        return NotImplemented if made is NotImplemented else (made, bins.clone())
    edges = _even_edges(points, [bins], range)
    made = NotImplemented if edges is None else _counted(points, edges, weight, density)
    return NotImplemented if edges is None or made is NotImplemented else (made, edges[0])


def _points(x: Tensor) -> Tensor:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


@decompose(aten._histogramdd_bin_edges.default)
def bin_edges(
    x: Tensor, bins: Sequence[int], *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    edges = _even_edges(_points(x), bins, range) if x.dim() > 1 else None
    return NotImplemented if edges is None else edges


@decompose(aten._histogramdd_from_bin_cts.default)
def from_counts(
    x: Tensor, bins: Sequence[int], *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    edges = bin_edges(x, bins, range=range)
    return edges if edges is NotImplemented else from_edges(x, edges, weight=weight, density=density)


@decompose(aten._histogramdd_from_bin_tensors.default)
def from_edges(x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Any:
    if x.dim() < 2 or not _fits(weight, x, x.shape[:-1]):
        return NotImplemented
    return _counted(_points(x), bins, weight, density)
