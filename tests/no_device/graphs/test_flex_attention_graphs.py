# tests/no_device/graphs/test_flex_attention_graphs.py: what compiled FlexAttention becomes, against PyTorch's definition in fp64.
from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor
from torch._higher_order_ops.flex_attention import sdpa_dense

from torch_ocl_compile.compile import blocks_of, debug, flex_attention

BATCH, HEADS, QUERIES, KEYS = 2, 4, 9, 11
Mod = Callable[..., Tensor]

WHOLE, CAUSAL, MASK, BIAS = "one attention", " with the causal mask", " with a mask", " with a bias"
LEARNED = BIAS + " (stored, as it has a gradient)"
# name -> (score_mod, mask_mod, what the op becomes). x: the captured tensors slopes [h], table [h, 20] and document [b, 11].
CASES: dict[str, tuple[Callable[[dict[str, Tensor]], Mod] | None, Callable[[dict[str, Tensor]], Mod] | None, str]] = {
    "plain": (None, None, WHOLE),
    "causal": (None, lambda x: lambda b, h, i, j: i >= j, WHOLE + CAUSAL),
    "window": (None, lambda x: lambda b, h, i, j: (i >= j) & (i - j < 4), WHOLE + MASK),
    "documents": (None, lambda x: lambda b, h, i, j: x["document"][b, i] == x["document"][b, j], WHOLE + MASK),
    "blind rows": (None, lambda x: lambda b, h, i, j: (i > 3) & (j > i), WHOLE + MASK),
    "alibi": (lambda x: lambda s, b, h, i, j: s - (i - j).abs() * x["slopes"][h], None, WHOLE + LEARNED),
    "alibi, causal": (
        lambda x: lambda s, b, h, i, j: torch.where(i >= j, s + x["slopes"][h] * (j - i), -math.inf),
        None,
        WHOLE + LEARNED + " and the causal mask",
    ),
    "relative": (
        lambda x: lambda s, b, h, i, j: 0.5 * s + x["table"][h, i - j + KEYS - 1] / 3 - 1,
        lambda x: lambda b, h, i, j: j < 8 + b,
        WHOLE + LEARNED + " and a mask",
    ),
    "two biases": (
        lambda x: lambda s, b, h, i, j: torch.where(i % 2 == 0, s - 0.2 * j, s.masked_fill(j > i, -math.inf)),
        None,
        WHOLE + BIAS + " and a mask",
    ),
    "constants": (lambda x: lambda s, b, h, i, j: s + torch.tensor([1.0, -2.0, 0.5, 3.0])[h], None, WHOLE + BIAS),
    "soft cap": (
        lambda x: lambda s, b, h, i, j: 2 * torch.tanh(s / 2) + x["slopes"][h] * j,
        lambda x: lambda b, h, i, j: i >= j,
        WHOLE + " with a soft cap and a bias (stored, as it has a gradient) and the causal mask",
    ),
    "sigmoid": (lambda x: lambda s, b, h, i, j: torch.sigmoid(s), None, "it applies sigmoid to the score"),
    "temperatures": (
        lambda x: lambda s, b, h, i, j: s * x["slopes"][h],
        lambda x: lambda b, h, i, j: (i > 3) & (j > i),
        "it multiplies the score by a value that is computed",
    ),
    "negated": (lambda x: lambda s, b, h, i, j: j - s, None, "it multiplies the score by -1"),
    "finite fill": (lambda x: lambda s, b, h, i, j: torch.where(i >= j, s, -1e9), None, "values other than -inf"),
}


def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
    assert flex_attention.rewrite(gm, "cpu") == 1
    return gm


def captured(dtype: torch.dtype) -> dict[str, Tensor]:
    document = torch.randint(0, 3, (BATCH, KEYS)).sort().values
    return {
        "slopes": torch.rand(HEADS, dtype=dtype),
        "table": torch.randn(HEADS, 20, dtype=dtype),
        "document": document,
    }


@pytest.mark.parametrize("name", CASES)
def test_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares the output, the logsumexp and all gradients, with two query heads for a head of keys and transposed queries."""
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)  # It forbids gradients on the CPU.
    score_mod, mask_mod, way = CASES[name]
    torch.manual_seed(0)
    dtype = torch.float64
    tensors = captured(dtype)
    q = torch.randn(BATCH, QUERIES, HEADS, 8, dtype=dtype).transpose(1, 2)
    k, v = (torch.randn(BATCH, HEADS // 2, KEYS, d, dtype=dtype) for d in (8, 5))
    block_mask = None
    if mask_mod is not None:
        block_mask = flex.create_block_mask(mask_mod(tensors), BATCH, None, QUERIES, KEYS, device="cpu")

    def function(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        mod = None if score_mod is None else score_mod({**tensors, "slopes": slopes, "table": table})
        return flex.flex_attention(q, k, v, mod, block_mask, enable_gqa=True, return_lse=True)  # type: ignore[return-value]

    def definition(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        mod = score_mod({**tensors, "slopes": slopes, "table": table}) if score_mod else lambda s, *_: s
        mask = mask_mod(tensors) if mask_mod else lambda *_: torch.tensor(True)
        out, lse, *_ = sdpa_dense(q, k, v, mod, (mask,), 1 / math.sqrt(8), {})
        return out, lse * math.log(2)

    leaves = [x.requires_grad_() for x in (q, k, v, tensors["slopes"].clone(), tensors["table"].clone())]
    torch._dynamo.reset()
    results = []
    with debug.collecting() as found:
        for called in (torch.compile(function, backend=backend, fullgraph=True), definition):
            out, lse = called(*leaves)
            assert out.stride() == (QUERIES * HEADS * 5, 5, HEADS * 5, 1)
            weight = torch.linspace(-1, 1, out.numel(), dtype=dtype).view(out.shape)
            loss = (out * weight).sum() + lse.masked_fill(lse == -math.inf, 0.0).square().sum()
            results.append([out, lse, *torch.autograd.grad(loss, leaves, allow_unused=True)])
    assert way in found.choices[0].way
    if way.startswith(WHOLE):
        assert found.choices[0].way == way
    assert found.choices[0].source.startswith("test_flex_attention_graphs.py")
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("whole", [True, False])
def test_what_blocks_hide(whole: bool) -> None:
    """Blocks from a mask and from lists, against the mask itself; the last block of each dimension is cut."""

    def shown(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i - j < 90) & (j - i < 70)

    queries, keys = 250, 300
    mask = shown(0, 0, torch.arange(queries)[:, None], torch.arange(keys))[None, None]
    for sizes in ((16, 16), (32, 64)):
        lists = flex.create_block_mask(shown, None, None, queries, keys, device="cpu", BLOCK_SIZE=sizes)
        given = [lists.kv_num_blocks, lists.kv_indices, lists.full_kv_num_blocks, lists.full_kv_indices]
        found = blocks_of.listed(given, sizes, queries, keys, whole)  # type: ignore[arg-type]
        if sizes == (16, 16):
            assert ((found > 0) == (blocks_of.seen(mask, whole) > 0)).all()
            found = blocks_of.seen(mask, whole)
        size = min(sizes)
        for r, c in itertools.product(range(found.shape[2]), range(found.shape[3])):
            part = mask[0, 0, r * size : (r + 1) * size, c * size : (c + 1) * size]
            assert found[0, 0, r, c] > 0 or not part.any()
            assert found[0, 0, r, c] < 2 or (whole and part.all())
        assert (found == 0).any() and (not whole or (found >= 2).any())
