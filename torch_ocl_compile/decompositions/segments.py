# torch_ocl_compile/decompositions/segments.py: reductions of consecutive segments of a dimension, and their gradients.
"""A position belongs to the segment that a binary search among the ends of the segments finds. Values are then added up by
segment, as in scatter_reduce. Positions outside of all segments go to one extra segment, which is cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch._prims_common import canonicalize_dim

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor

# Reduction -> (reduction of scatter_reduce, what it starts with).
REDUCTIONS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "prod": ("prod", 1.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
}


@dataclass(frozen=True)
class Segments:
    """Segments of dimension `axis`. Tensors with one element for each position or segment are shaped like the data."""

    axis: int
    number: Any
    slot: Tensor  # The segment of each position; `number` outside of all segments. As large as the data.
    lengths: Tensor  # [.., number, 1, ..]

    def reduced(self, values: Tensor, reduction: str, start: float) -> Tensor:
        """Returns the values of each segment, reduced together with `start`."""
        shape = list(values.shape)
        shape[self.axis] = self.number + 1
        made = torch.full(shape, start, dtype=values.dtype, device=values.device)
        made = torch.scatter_reduce(made, self.axis, self.slot, values, reduction, include_self=True)
        return made.narrow(self.axis, 0, self.number)

    def spread(self, of_segment: Tensor, outside: float) -> Tensor:
        """Returns for each position the value of its segment."""
        shape = list(of_segment.shape)
        shape[self.axis] = 1
        extra = torch.full(shape, outside, dtype=of_segment.dtype, device=of_segment.device)
        return torch.gather(torch.cat([of_segment, extra], self.axis), self.axis, self.slot)


def _segments(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> Segments:
    if lengths is None:
        assert offsets is not None
        starts, ends = offsets[..., :-1], offsets[..., 1:]
        lengths = ends - starts
    else:
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    count, number = data.shape[axis], ends.shape[-1]
    position = torch.arange(count, dtype=ends.dtype, device=data.device).expand(*data.shape[:axis], count)
    if number == 0:
        slot = torch.zeros(position.shape, dtype=torch.int64, device=data.device)
    else:
        slot = torch.searchsorted(ends.contiguous(), position.contiguous(), right=True)
        first = starts.gather(-1, slot.clamp(max=number - 1))
        slot = torch.where(position >= first, slot, number)
    inner = [1] * (data.dim() - axis - 1)
    slot = slot.reshape(*slot.shape, *inner).expand(data.shape)
    return Segments(axis, number, slot, lengths.reshape(*lengths.shape, *inner))


@decompose(aten.segment_reduce.default)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Computes in float32 for halves, and rounds once."""
    given = lengths if lengths is not None else offsets
    if (
        reduce not in REDUCTIONS
        or indices is not None
        or given is None
        or (lengths is not None and offsets is not None)
    ):
        return NotImplemented
    axis = canonicalize_dim(data.dim(), axis)
    if axis != given.dim() - 1 or data.dim() < given.dim() or given.shape[:-1] != data.shape[:axis]:
        return NotImplemented  # PyTorch raises an error.
    segments = _segments(data, lengths, offsets, axis)
    name, start = REDUCTIONS[reduce]
    wide = data if data.dtype in (torch.float32, torch.float64) else data.to(torch.float32)
    made = segments.reduced(wide, name, start if initial is None else initial)
    if reduce == "mean":
        empty = math.nan if initial is None else initial
        made = torch.where(segments.lengths == 0, empty, made / segments.lengths)
    return made.to(data.dtype)


@decompose(aten._segment_reduce_backward.default)
def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Any:
    if reduce not in REDUCTIONS:
        return NotImplemented
    segments = _segments(data, lengths, offsets, canonicalize_dim(data.dim(), axis))
    if reduce == "mean":
        grad = torch.where(segments.lengths == 0, 0.0, grad / segments.lengths)
    elif reduce == "prod":
        return _of_product(segments, grad, output, data, 1.0 if initial is None else initial)
    spread = segments.spread(grad, 0.0)
    if reduce in ("sum", "mean"):
        return spread
    # Elements that share the extreme share its gradient. As in ATen's kernels, each gets all of it if it is negative.
    chosen = data.isnan() | (data == segments.spread(output, math.nan))
    sharing = segments.spread(segments.reduced(chosen.to(torch.float32), "sum", 0.0), 1.0)
    return torch.where(chosen, torch.where(spread > 0, spread / sharing, spread), 0.0).to(data.dtype)


def _of_product(segments: Segments, grad: Tensor, output: Tensor, data: Tensor, initial: float) -> Tensor:
    """Returns the gradient of a product. For an element that is 0 or NaN it needs the product of all others."""
    is_zero, is_nan = data == 0, data.isnan()

    def others(of: Tensor) -> Tensor:
        own = of.to(torch.float32)
        return segments.spread(segments.reduced(own, "sum", 0.0), 0.0) - own > 0

    rest = segments.reduced(torch.where(is_zero | is_nan, 1.0, data), "prod", initial)
    without = segments.spread(rest, 0.0)
    without = torch.where(others(is_nan), math.nan, torch.where(others(is_zero), without * 0, without))
    whole = segments.spread(grad * output, 0.0) / data
    return torch.where(is_zero | is_nan, segments.spread(grad, 0.0) * without, whole)
