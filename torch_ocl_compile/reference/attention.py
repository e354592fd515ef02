# torch_ocl_compile/reference/attention.py: defines what an Attention node of the IR computes, with plain torch ops.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_ocl_compile._C import ir
from torch_ocl_compile.reference import philox


def dropped(state: Tensor, shape: Sequence[int], p: float) -> Tensor:
    """Returns a mask of the elements of p [b, h, lq, lk] that an Attention node drops; see AttentionAttrs in graph.h."""
    keys = torch.arange(shape[-1])
    rows = torch.arange(math.prod(shape[:-1])).view(*shape[:-1], 1)
    words = philox.philox(state[0], state[1], rows * -(-shape[-1] // 4) + keys // 4)
    return philox.lane_of(words, keys % 4) < p


class Scores:
    """The steps that Attention nodes share, by the definition in graph.h. Sums are computed in the operands' compute
    type."""

    def __init__(self, attrs: Any, operands: Sequence[Tensor], is_forward: bool) -> None:
        self.attrs = attrs
        q, k, v, *rest = operands
        self.q: Tensor = q
        self.group = q.shape[1] // k.shape[1] if k.shape[1] else 1
        self.k, self.v = (x.repeat_interleave(self.group, 1) for x in (k, v))
        if not is_forward:
            self.grad, sums, self.delta, *rest = rest
        s = torch.matmul(self.q, self.k.mT) * attrs.scale
        self.slope: Any = 1.0  # The derivative of the soft cap.
        if attrs.cap > 0:
            bounded = torch.tanh(s / attrs.cap)
            s, self.slope = bounded * attrs.cap, 1 - bounded.square()
        if attrs.masked:
            mask = rest.pop(0)
            s = s.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else s + mask
        if attrs.causal:
            s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
        blind = (s == -math.inf).all(-1, keepdim=True) & (s.shape[-1] > 0)
        self.keep: Any = 1.0
        if attrs.dropout > 0:
            scale = 1 / (1 - attrs.dropout) if attrs.dropout < 1 else 0.0
            self.keep = torch.where(dropped(rest.pop(0), s.shape, attrs.dropout), 0.0, scale)
        if is_forward:
            most = s.amax(-1) if s.shape[-1] else s.new_zeros(s.shape[:-1])
            most = most.masked_fill(most == -math.inf, 0.0)
            sums = torch.stack([most, torch.exp(s - most.unsqueeze(-1)).sum(-1)])
        self.sums: Tensor = sums
        p = torch.exp(s - sums[0].unsqueeze(-1)) / sums[1].unsqueeze(-1)
        self.p = p.masked_fill(blind, math.nan if attrs.nan_rows else 0.0)

    def score_gradient(self) -> Tensor:
        """Returns the gradient of the scores with their mask, [b, h, lq, lk]."""
        grad_p: Tensor = torch.matmul(self.grad, self.v.mT) * self.keep
        return self.p * (grad_p - self.delta.unsqueeze(-1))

    def grouped(self, x: Tensor) -> Tensor:
        summed: Tensor = x.unflatten(1, (-1, self.group)).sum(2)
        return summed


def attention(attrs: Any, operands: Sequence[Tensor]) -> list[Tensor]:
    """Returns the results of an Attention node."""
    forward = attrs.kind == ir.AttentionKind.kForward
    a = Scores(attrs, operands, forward)
    if forward:
        return [torch.matmul(a.p * a.keep, a.v), a.sums]
    ds = a.score_gradient() * a.slope * attrs.scale
    results = []
    if attrs.kind != ir.AttentionKind.kKeyValue:
        results.append(torch.matmul(ds, a.k))
    if attrs.kind != ir.AttentionKind.kQuery:
        results += [a.grouped(torch.matmul(ds.mT, a.q)), a.grouped(torch.matmul((a.p * a.keep).mT, a.grad))]
    return results


def attention_score_gradient(attrs: Any, operands: Sequence[Tensor]) -> Tensor:
    """Returns the gradient of the scores, from the operands of a gradient node. It is also the gradient of a mask,
    before it is summed over broadcast dimensions.
    """
    return Scores(attrs, operands, False).score_gradient()
