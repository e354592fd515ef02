# tests/device/kernels/test_flex_attention.py: FlexAttention on a device: compiled and op by op, forward and backward, symbolic lengths.
from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor
from torch._higher_order_ops.flex_attention import sdpa_dense

from torch_ocl_compile import explain

HEADS, DEPTH = 4, 16


def biased(slopes: Tensor) -> Any:
    return lambda s, b, h, i, j: 2 * torch.tanh(s / 2) - slopes[h] * (i - j).abs()


def capped(slopes: Tensor) -> Any:
    return lambda s, b, h, i, j: torch.tanh(s * slopes[h]) / slopes[h]


MODS = {"biased": biased, "capped": capped}


def window(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i - j < 40) & (j < 9 * i) & (i % 8 != 3)  # Some queries see no key.


def tensors_of(queries: int, keys: int) -> list[Tensor]:
    torch.manual_seed(queries)
    q = torch.randn(2, queries, HEADS, DEPTH).transpose(1, 2)
    return [q, *(torch.randn(2, HEADS // 2, keys, DEPTH) for _ in range(2)), torch.rand(HEADS) + 0.5]


def run(function: Any, tensors: list[Tensor], device: str, dtype: torch.dtype) -> list[Tensor]:
    """Returns output, logsumexp and gradients on the CPU."""
    leaves = [x.detach().to(device, dtype).requires_grad_() for x in tensors]
    out, lse = function(*leaves)
    weight = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out)
    loss = (out * weight).sum() + torch.where(lse == -math.inf, 0.0, lse).square().sum()
    return [x.detach().cpu() for x in (out, lse, *torch.autograd.grad(loss, leaves))]


def definition(way: str) -> Any:
    def function(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        out, lse, *_ = sdpa_dense(q, k, v, MODS[way](slopes), (window,), 1 / math.sqrt(DEPTH), {})
        return out, lse * math.log(2)

    return function


def attention(way: str) -> Any:
    def function(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, mask: Any) -> Any:
        return flex.flex_attention(q, k, v, MODS[way](slopes), mask, enable_gqa=True, return_lse=True)

    return function


def mask_of(queries: int, keys: int, device: str) -> Any:
    return flex.create_block_mask(window, None, None, queries, keys, device="cpu").to(device)


def agree(ours: list[Tensor], exact: list[Tensor]) -> None:
    for got, want in zip(ours, exact, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=2e-5 * want[want.isfinite()].abs().max().item())


@pytest.mark.sampled(first=1, every=0)
@pytest.mark.parametrize("family", ["item", "group"])
def test_gradients(ocl_device: str, family: str) -> None:
    options = {"fallback": "error", "kernel_family": family}
    function = torch.compile(attention("biased"), backend="ocl", dynamic=False, options=options)
    tensors, mask = tensors_of(50, 300), mask_of(50, 300, ocl_device)
    ours = run(lambda *x: function(*x, mask), tensors, ocl_device, torch.float32)
    agree(ours, run(definition("biased"), tensors, "cpu", torch.float64))


@pytest.mark.sampled(first=1, every=0)
def test_symbolic_lengths(ocl_device: str) -> None:
    """Both calls run the same graph. Torch 2.11 fixes the number of keys when it traces a block mask."""
    getattr(flex, "_WARNINGS_SHOWN", set()).add("deprecated_return_lse")  # Shown during a trace, PyTorch traces again.
    function = torch.compile(attention("capped"), backend="ocl", dynamic=True, options={"fallback": "error"})
    compare(function, "capped", 70, 90, ocl_device)
    with torch._dynamo.config.patch(error_on_recompile=torch.__version__ >= (2, 13)):
        compare(function, "capped", 111, 67, ocl_device)


@pytest.mark.sampled(first=1, every=0)
def test_eager(ocl_device: str) -> None:
    compare(attention("biased"), "biased", 30, 50, ocl_device)


def compare(function: Any, way: str, queries: int, keys: int, device: str) -> None:
    tensors = tensors_of(queries, keys)
    ours = function(*(x.to(device) for x in tensors), mask_of(queries, keys, device))
    agree([x.cpu() for x in ours], list(definition(way)(*(x.double() for x in tensors))))


@pytest.mark.sampled(first=1, every=0)
@pytest.mark.parametrize("known", [True, False])
def test_explain(ocl_device: str, known: bool) -> None:
    n = 64 if known else 1 << 14  # Of so many scores, mask_mod is not asked.
    q = torch.randn(1, 2, n, 16, device=ocl_device)
    mask = flex.create_block_mask(lambda b, h, i, j: j <= i, None, None, n, n, device=ocl_device)
    it = explain(lambda q: flex.flex_attention(q, q, q, block_mask=mask), q, runs=0)
    assert [choice.way for choice in it.choices] == ["one attention with the causal mask"]
    assert "flex_attention (test_flex_attention.py:" in str(it)
    assert "attention" in [kernel.kind for kernel in it.graphs[0].kernels]


@pytest.mark.sampled(first=1, every=0)
def test_autocast(ocl_device: str) -> None:
    q, k, v, slopes = (x.to(ocl_device) for x in tensors_of(33, 20))

    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        with torch.autocast("ocl", torch.bfloat16):
            return flex.flex_attention(q, k, v, biased(slopes), enable_gqa=True)

    out = torch.compile(function, backend="ocl", options={"fallback": "error"})(q, k, v)
    assert out.dtype is torch.bfloat16
    exact = flex.flex_attention(*(x.cpu().double() for x in (q, k, v)), biased(slopes.cpu().double()), enable_gqa=True)
    torch.testing.assert_close(out.cpu().double(), exact, rtol=0.02, atol=0.02)


def test_values_reshaped_afterwards(ocl_device: str) -> None:
    """Values that the program transposes in place after the call have their first shape in it."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        values = v * 2
        mask = flex.create_block_mask(window, 1, 1, q.shape[2], k.shape[2], device=q.device)
        out = flex.flex_attention(q, k, values, lambda s, b, h, i, j: s * h, mask)
        values.transpose_(1, 3)
        return out, values

    q, k, v = (torch.randn(2, size, 6, DEPTH) for size in (HEADS, HEADS, HEADS))
    got = torch.compile(function, backend="ocl")(*(x.to(ocl_device) for x in (q, k, v)))
    exact = function(q.double(), k.double(), v.double())
    agree([x.cpu() for x in got], [x.double() for x in exact])
