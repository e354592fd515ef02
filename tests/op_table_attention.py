# tests/op_table_attention.py: rows of attention: scaled_dot_product_attention and spelled-out attention.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.op_row import Op, fixed, make

Tensor = torch.Tensor
sdpa: Any = F.scaled_dot_product_attention


def qkv(*shapes: Any) -> Callable[[torch.dtype], list[tuple[Any, ...]]]:
    """Returns samples, given (queries [.., l, d], keys [.., l, d], head size of v)."""

    def samples(dtype: torch.dtype) -> list[tuple[Any, ...]]:
        return [
            (make(*q, dtype=dtype), make(*k, dtype=dtype) * 0.9, make(*k[:-1], v, dtype=dtype)) for q, k, v in shapes
        ]

    return samples


def sees(*shape: int) -> Tensor:
    """Returns a bool mask that hides all keys from the first query."""
    mask = make(*shape, dtype=torch.bool)
    mask[..., 0, :] = False
    return mask


def blocked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as nanoGPT writes it: the causal mask is a slice of a larger buffer."""
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    table = torch.tril(torch.ones(64, 64, device=q.device)).view(1, 1, 64, 64)
    att = att.masked_fill(table[:, :, : q.size(-2), : k.size(-2)] == 0, float("-inf"))
    return F.dropout(F.softmax(att, dim=-1), 0.1, False) @ v


def additive(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention as transformers writes it: repeated heads, an added mask, softmax in fp32."""

    def repeated(x: Tensor) -> Tensor:
        b, h, length, d = x.shape
        return x[:, :, None, :, :].expand(b, h, 2, length, d).reshape(b, h * 2, length, d)

    weights = torch.matmul(q, repeated(k).transpose(2, 3)) * 0.3
    weights = weights + torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, repeated(v)).transpose(1, 2).contiguous()


def batched(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention by bmm, with torch.where for the mask and a division for the scale."""
    s = torch.where(mask, torch.bmm(q, k.mT) / 2.5, torch.full((), -1e32, device=q.device))
    return torch.bmm(s.softmax(-1), v)


def attention_rows() -> list[Op]:
    small = lambda: (make(2, 3, 5, 8), make(2, 3, 7, 8), make(2, 3, 7, 8))  # noqa: E731
    rows = lambda: (make(2, 9, 4, 8), make(2, 9, 4, 8), make(2, 9, 4, 8))  # noqa: E731
    few = lambda: (make(2, 4, 5, 8), make(2, 2, 7, 8), make(2, 2, 7, 8))  # noqa: E731
    return [
        Op("sdpa", sdpa, qkv(((2, 3, 5, 16), (2, 3, 7, 16), 16), ((1, 1, 1, 8), (1, 1, 1, 8), 8))),
        Op("sdpa_long", sdpa, qkv(((1, 2, 129, 64), (1, 2, 300, 64), 64))),
        Op("sdpa_head_sizes", sdpa, qkv(*(((1, 2, 9, d), (1, 2, 17, d), v) for d, v in ((7, 5), (80, 80), (128, 24), (256, 256))))),
        Op("sdpa_causal", lambda q, k, v: sdpa(q, k, v, is_causal=True),
           qkv(((1, 2, 70, 16), (1, 2, 70, 16), 16), ((1, 2, 33, 8), (1, 2, 70, 8), 8), ((1, 2, 70, 8), (1, 2, 33, 8), 8))),
        Op("sdpa_scale", lambda q, k, v: sdpa(q, k, v, scale=0.7), fixed(small)),
        Op("sdpa_bool_mask", sdpa, fixed(lambda: (*small(), sees(5, 7)), lambda: (*small(), sees(2, 1, 1, 7)))),
        Op("sdpa_float_mask", sdpa, fixed(lambda: (*small(), make(2, 1, 5, 7)), lambda: (*small(), make(5, 7)))),
        Op("sdpa_grouped", lambda q, k, v: sdpa(q, k, v, enable_gqa=True, is_causal=True), fixed(few)),
        Op("sdpa_strided", lambda q, k, v: sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).flatten(2),
           fixed(rows)),
        Op("sdpa_ranks", lambda q, k, v: (sdpa(q, k, v), sdpa(q[0], k[0], v[0]), sdpa(q[0, 0], k[0, 0], v[0, 0], is_causal=True),
                                          sdpa(q[None], k[None], v[None])), fixed(small)),
        Op("sdpa_double", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(((1, 2, 5, 8), (1, 2, 7, 8), 4)), (torch.float64,)),
        Op("sdpa_no_keys", sdpa, fixed(lambda: (make(1, 2, 5, 8), make(1, 2, 0, 8), make(1, 2, 0, 8)))),
        Op("attention_blocked", blocked, qkv(((2, 3, 33, 16), (2, 3, 33, 16), 16))),
        Op("attention_additive", additive, fixed(lambda: (*few(), sees(2, 1, 5, 7)))),
        Op("attention_batched", batched, fixed(lambda: (make(2, 5, 8), make(2, 7, 8), make(2, 7, 8), sees(2, 5, 7)))),
        Op("attention_of_nothing", lambda q, k, v, m: torch.softmax((q @ k.mT).masked_fill(~m, -math.inf), -1) @ v,
           fixed(lambda: (*small(), sees(5, 7))), gradient=False),
    ]  # fmt: skip
