# tests/device/kernels/test_flex_masks.py: masks and biases of FlexAttention that kernels compute: values, gradients, memory.
from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor
from torch._higher_order_ops.flex_attention import sdpa_dense

from tests.device.kernels.test_attention import run
from torch_ocl_compile import explain

BATCH, HEADS, DEPTH = 2, 4, 16


def mods_of(device: str, dtype: torch.dtype, learned: bool = False) -> dict[str, Any]:
    """Returns score_mods and mask_mods by name."""
    torch.manual_seed(1)
    slopes = (torch.rand(HEADS) + 0.5).to(device, dtype).requires_grad_(learned)
    table = torch.randn(HEADS, 4100).to(device, dtype)
    document = torch.randint(0, 3, (BATCH, 300)).sort().values.to(device)
    return {
        "alibi": lambda s, b, h, i, j: s + slopes[h] * (j - i),
        "relative": lambda s, b, h, i, j: torch.where(j % 5 != 1, 0.5 * s + table[h, (i - j) + 2050], -math.inf),
        "window": lambda b, h, i, j: (i - j < 40) & (j < 9 * i) & (i % 8 != 3),  # Some queries see no key.
        "documents": lambda b, h, i, j: document[b, i] == document[b, j],
        "of_heads": lambda b, h, i, j: i + 20 * h >= j,
        "wide": lambda b, h, i, j: (i - j < 90) & (j - i < 70),  # It hides nothing of some blocks.
    }


CASES = {
    "alibi": ("alibi", "window"),
    "relative": ("relative", "window"),
    "documents": (None, "documents"),
    "of heads": ("alibi", "of_heads"),
    "wide": (None, "wide"),
    "wide with a bias": ("alibi", "wide"),
}


def picked(case: str, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    mods, (score, mask) = mods_of(device, dtype), CASES[case]
    return (mods[score] if score else None), mods[mask]


def tensors_of(queries: int, keys: int) -> list[Tensor]:
    torch.manual_seed(queries)
    return [torch.randn(BATCH, HEADS if n == queries else HEADS // 2, n, DEPTH) for n in (queries, keys, keys)]


def defined(case: str, tensors: list[Tensor]) -> list[Tensor]:
    score, mask = picked(case, "cpu", torch.float64)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, *_ = sdpa_dense(q, k, v, score or (lambda s, *_: s), (mask,), 1 / math.sqrt(DEPTH), {})
        return out

    return run(function, tensors, "cpu", torch.float64)


def compiled(case: str, queries: int, keys: int, device: str, **options: Any) -> Any:
    score, mask = picked(case, device, torch.float32)
    shown = flex.create_block_mask(mask, BATCH, HEADS, queries, keys, device=device)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex.flex_attention(q, k, v, score, shown, enable_gqa=True)

    torch._dynamo.reset()
    return torch.compile(
        function, backend="ocl", dynamic=False, options={"fallback": "error", "verify": True, **options}
    )


@pytest.mark.sampled(first=2, every=4)
@pytest.mark.parametrize("queries", [4, 135])  # Few queries have a kernel of their own.
@pytest.mark.parametrize("family", ["item", "group"])
@pytest.mark.parametrize("case", CASES)
def test_values(ocl_device: str, case: str, family: str, queries: int) -> None:
    tensors = tensors_of(queries, 290)
    ours = run(compiled(case, queries, 290, ocl_device, kernel_family=family), tensors, ocl_device, torch.float32)
    for got, want in zip(ours, defined(case, tensors), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=2e-5 * want.abs().max().item())


@pytest.mark.sampled(first=1, every=0)
@pytest.mark.parametrize("case", ["alibi", "relative"])
def test_memory(ocl_device: str, case: str) -> None:
    """Training at 2,000 tokens takes far less memory than a mask of all scores would."""
    length = 2000
    score, mask = picked(case, ocl_device, torch.float32)
    shown = flex.create_block_mask(mask, None, None, length, length, device=ocl_device)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex.flex_attention(q, k, v, score, shown)

    leaves = [torch.randn(1, HEADS, length, DEPTH, device=ocl_device, requires_grad=True) for _ in range(3)]
    function = torch.compile(attend, backend="ocl", dynamic=False, options={"fallback": "error"})
    for _ in range(2):
        torch.ocl.synchronize()
        torch.ocl.reset_peak_memory_stats()
        before = torch.ocl.memory_allocated()
        torch.autograd.grad(function(*leaves).sum(), leaves)
        torch.ocl.synchronize()
        taken = torch.ocl.max_memory_allocated() - before
    mask = HEADS * length * length * 4
    assert taken < mask / 5


@pytest.mark.sampled(first=1, every=0)
def test_learned_bias_is_stored(ocl_device: str) -> None:
    """The gradient of a bias is a tensor of all scores. explain says so."""
    q = torch.randn(1, HEADS, 64, DEPTH, device=ocl_device)
    for learned in (False, True):
        alibi = mods_of(ocl_device, torch.float32, learned)["alibi"]
        it = explain(lambda q, alibi=alibi: flex.flex_attention(q, q, q, alibi), q, runs=0)
        assert it.choices[0].way.endswith("a bias (stored, as it has a gradient)" if learned else "a bias")
