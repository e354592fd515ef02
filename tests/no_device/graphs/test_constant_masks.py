# tests/no_device/graphs/test_constant_masks.py: attention masks that depend on no input become is_causal, or vanish.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ocl_compile.compile import attention_pattern, constant_masks
from torch_ocl_compile.fx.effects import named_arguments

QUERIES, KEYS = 6, 9
Mask = Callable[[Tensor], Tensor]


def ranges(x: Tensor) -> Tensor:
    """A causal mask as transformers makes it: indices of positions, gathered and compared."""
    positions = torch.arange(QUERIES, device=x.device).unsqueeze(0).expand(2, -1)
    batch = torch.arange(2, device=x.device)[:, None, None, None]
    q = torch.arange(QUERIES, device=x.device)[None, None, :, None]
    k = torch.arange(QUERIES, device=x.device)[None, None, None, :]
    seen = x.new_ones((), dtype=torch.bool) & (positions[batch, k] <= positions[batch, q]).to(x.device)
    return seen.expand(2, -1, QUERIES, QUERIES)


def written(x: Tensor) -> Tensor:
    mask = torch.full((QUERIES, QUERIES), -math.inf, device=x.device)
    mask.triu_(1)
    return mask


def lowest(x: Tensor) -> Tensor:
    return torch.triu(torch.full((QUERIES, QUERIES), torch.finfo(torch.float32).min, device=x.device), diagonal=1)


def overwritten(x: Tensor) -> Tensor:
    mask = torch.ones(QUERIES, QUERIES, dtype=torch.bool, device=x.device).tril()
    mask[3, 1] = False
    return mask


MASKS: dict[str, tuple[Mask, int, str]] = {
    "ranges": (ranges, QUERIES, "causal"),
    "written in place": (written, QUERIES, "causal"),
    "lowest number": (lowest, QUERIES, "causal"),
    "more keys": (lambda x: torch.ones(QUERIES, KEYS, dtype=torch.bool, device=x.device).tril(), KEYS, "causal"),
    "nothing hidden": (lambda x: torch.zeros(QUERIES, KEYS, device=x.device), KEYS, "whole"),
    "one row": (lambda x: torch.ones(1, KEYS, dtype=torch.bool, device=x.device), KEYS, "whole"),
    "other triangle": (lambda x: torch.ones(QUERIES, KEYS, dtype=torch.bool).tril(1), KEYS, "mask"),
    "overwritten": (overwritten, QUERIES, "mask"),
    "bias": (lambda x: torch.arange(KEYS, device=x.device).float().expand(QUERIES, KEYS), KEYS, "mask"),
    "of an input": (lambda x: x[0, 0] > 0, 8, "mask"),
    "random": (lambda x: torch.rand(QUERIES, KEYS, device=x.device) > -1, KEYS, "mask"),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("spelled_out", [False, True])
def test_kind(name: str, spelled_out: bool) -> None:
    mask, keys, expected = MASKS[name]
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8) for n in (QUERIES, keys, keys))

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        m = mask(q)
        if not spelled_out:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=m)
        scores = q @ k.mT / math.sqrt(8)
        scores = scores.masked_fill(~m, -math.inf) if m.dtype is torch.bool else scores + m
        return F.softmax(scores, -1) @ v

    kinds = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        attention_pattern.rewrite(gm, "cpu")
        constant_masks.rewrite(gm)
        for node in gm.graph.nodes:
            if node.target in constant_masks.ATTENTION:
                mask, causal = (named_arguments(node)[name] for name in constant_masks.ATTENTION[node.target])
                kinds.append("mask" if mask is not None else "causal" if causal else "whole")
        return gm

    torch._dynamo.reset()
    got = torch.compile(function, backend=backend)(q, k, v)
    assert kinds == [expected]
    torch.testing.assert_close(got, function(q, k, v))


def test_mask_that_changes_between_two_attentions() -> None:
    """The first attention is causal. The second reads the mask after a write."""
    q = torch.randn(1, 1, QUERIES, 8)

    def function(x: Tensor) -> Tensor:
        mask = torch.ones(QUERIES, QUERIES, dtype=torch.bool).tril()
        y = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        mask[0, 2] = True
        return F.scaled_dot_product_attention(y, x, x, attn_mask=mask)

    changed = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        changed.append(constant_masks.rewrite(gm))
        return gm

    torch._dynamo.reset()
    got = torch.compile(function, backend=backend)(q)
    assert changed == [1]
    torch.testing.assert_close(got, function(q))
