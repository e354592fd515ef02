# torch_ocl_compile/decompositions/jagged.py: between jagged tensors and padded ones.
"""A jagged tensor is `values` [total, ..] with the rows of all sequences, and `offsets` [batch + 1] of their first rows. A padded one
is [batch, longest, ..]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor


@decompose(aten._jagged_to_padded_dense_forward.default)
def jagged_to_padded(values: Tensor, offsets: Sequence[Tensor], longest: Sequence[Any], padding: float = 0.0) -> Any:
    """Returns the rows as [batch, longest, ..]. Rows of a sequence beyond `longest` are left out."""
    if len(offsets) != 1 or values.dim() < 2:
        return NotImplemented
    starts, ends = offsets[0][:-1, None], offsets[0][1:, None]
    row = starts + torch.arange(longest[0], device=values.device, dtype=offsets[0].dtype)[None, :]
    shape = [starts.shape[0], longest[0], *values.shape[1:]]
    if values.shape[0] == 0:
        return values.new_full(shape, padding)
    within = (row < ends).reshape(*row.shape, *[1] * (values.dim() - 1))
    padded = values[row.clamp(max=values.shape[0] - 1)]
    return torch.where(within, padded, torch.full((), padding, dtype=values.dtype, device=values.device))


@decompose(aten._padded_dense_to_jagged_forward.default)
def padded_to_jagged(padded: Tensor, offsets: Sequence[Tensor], total: Any = None) -> Any:
    """Returns the rows that are no padding as [total, ..]. A row beyond padded.shape[1] is 0."""
    if len(offsets) != 1 or padded.dim() < 3 or total is None:  # Without `total`, the size depends on the data.
        return NotImplemented
    row = torch.arange(total, device=padded.device, dtype=offsets[0].dtype)
    sequence = torch.searchsorted(offsets[0][1:].contiguous(), row, right=True)
    place = row - offsets[0][sequence]
    longest = padded.shape[1]
    found = padded[sequence.clamp(max=padded.shape[0] - 1), place.clamp(max=longest - 1)]
    within = (place < longest).reshape(-1, *[1] * (padded.dim() - 2))
    return torch.where(within, found, torch.zeros((), dtype=padded.dtype, device=padded.device))
