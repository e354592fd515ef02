# tests/fuzz/flex.py: FlexAttention by its definition, on whole tensors of scores: what random programs are compared with.
"""PyTorch's own eager FlexAttention traces the score_mod at each call, which takes too long for many runs in fp64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Mask:
    mask_mod: Callable[..., Tensor]


def create_block_mask(mask_mod: Callable[..., Tensor], *_: Any, **__: Any) -> Mask:
    return Mask(mask_mod)


def attend(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any = None, block_mask: Mask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
) -> Any:  # fmt: skip
    """Returns softmax(score_mod(scale * query @ key.mT)) @ value, and the logsumexp of each row if wanted."""
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError("heads differ")
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = (query.to(wide) @ key.to(wide).mT) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    b, h, i, j = (
        torch.arange(size, dtype=torch.int32, device=scores.device).view([-1 if d == e else 1 for e in range(4)])
        for d, size in enumerate(scores.shape)
    )
    if score_mod is not None:
        scores = score_mod(scores, b, h, i, j).to(wide)
    if block_mask is not None:
        scores = torch.where(block_mask.mask_mod(b, h, i, j), scores, -math.inf)
    largest = scores.detach().amax(-1, keepdim=True)
    weights = (scores - torch.where(largest == -math.inf, 0.0, largest)).exp()
    total = weights.sum(-1, keepdim=True)
    seen = total != 0
    out = ((weights / torch.where(seen, total, 1.0)) @ value.to(wide)).to(query.dtype)
    if not return_lse:
        return out
    lse = torch.where(seen, torch.where(seen, total, 1.0).log() + largest, -math.inf)
    return out, lse.squeeze(-1)
