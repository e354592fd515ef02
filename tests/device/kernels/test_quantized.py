# tests/device/kernels/test_quantized.py: products with quantised weights: one launch that reads the weight as it is stored.
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import ocl_run
import torch_ocl_compile
from torch_ocl_compile import package

N, K, GROUP = 96, 256, 64
Tensor = torch.Tensor


def int8_weight(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype) * scale[:, None])


def scaled_result(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype)) * scale


def _grouped(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    w = (q.to(x.dtype) - 8).reshape(len(q), -1, GROUP) * scale[..., None]
    return F.linear(x, w.reshape(len(q), -1))


def int4_stacked(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    return _grouped(x, torch.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1), scale)


def int4_halves(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    return _grouped(x, torch.cat([packed & 15, packed >> 4], -1), scale)


def int4_words(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=torch.int32)
    return _grouped(x, ((packed[..., None] >> shifts) & 15).reshape(len(packed), -1), scale)


def float8_weight(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype) * scale[:, None])


def weight_first(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """The packed matrix is the first operand."""
    return ((w.to(x.dtype) * scale[:, None]) @ x.t()).t()


def weights(function: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """Returns a weight and its scales."""
    torch.manual_seed(0)
    scales = torch.rand(N, K // GROUP) if function.__name__.startswith("int4") else torch.rand(N)
    if function is float8_weight:
        return torch.randn(N, K).to(torch.float8_e4m3fn), scales
    if function is int4_words:
        return torch.randint(-(2**31), 2**31, (N, K // 8)).to(torch.int32), scales
    if function.__name__.startswith("int4"):
        return torch.randint(0, 256, (N, K // 2), dtype=torch.uint8), scales
    return torch.randint(-128, 128, (N, K), dtype=torch.int8), scales


FUNCTIONS = [int8_weight, scaled_result, int4_stacked, int4_halves, int4_words, float8_weight, weight_first]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.sampled(first=3, every=12)
def test_a_packed_weight_is_read_as_it_is(ocl_device: str, function: Callable[..., Any], rows: int) -> None:
    weight, scales = weights(function)
    dtype = torch.float32 if rows == 1 else torch.bfloat16
    x = torch.randn(rows, K, dtype=dtype)
    arguments = [t.to(ocl_device) for t in (x, weight, scales.to(dtype))]
    exact = function(x.double(), weight, scales.to(dtype).double())
    with torch.no_grad():
        kernels = [k for g in torch_ocl_compile.explain(function, *arguments).graphs for k in g.kernels]
        # With three rows, the kernels have the form for GPUs.
        options = {"fallback": "error", "kernel_family": "group" if rows == 3 else "auto"}
        got = torch.compile(function, backend="ocl", dynamic=False, options=options)(*arguments)
    tolerance = 1e-5 if rows == 1 else 2e-2
    assert (got.cpu() - exact).abs().max() <= tolerance * exact.abs().max()
    unpacked = [k for k in kernels if any(f"[{N}, {K}]" in text for text in k.writes)]
    readers = [k for k in kernels if k.kind == "reduction"]
    assert not unpacked and len(readers) == 1, [(k.kind, k.reads, k.writes) for k in kernels]
    # A CPU reads three factors for two int4.
    assert readers[0].bytes <= weight.nbytes + 4 * rows * (1.5 * K + 2 * N) + 4 * scales.numel()


def test_packed_weights_are_not_kept_unpacked(ocl_device: str) -> None:

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            w, scale = weights(int8_weight)
            self.w, self.scale = (torch.nn.Parameter(t, requires_grad=False) for t in (w, scale))

        def forward(self, x: Tensor) -> Tensor:
            return int8_weight(x, self.w, self.scale)

    model = Linear().to(ocl_device)
    with torch.no_grad():
        for rows in (1, 32):
            kernels = [
                k
                for g in torch_ocl_compile.explain(model, torch.randn(rows, K, device=ocl_device)).graphs
                for k in g.kernels
            ]
            assert not any(k.kept and f"[{N}, {K}]" in text for k in kernels for text in k.writes)


@pytest.mark.parametrize("rows", [4, 40])
@pytest.mark.sampled(first=1, every=0)
def test_ops_of_quantised_products(ocl_device: str, rows: int) -> None:
    """aten's ops, eager, with rows for the loops and for the matrix product kernels."""
    torch.manual_seed(0)
    aten = torch.ops.aten
    before = dict(torch.ocl.fallback_counts())
    x = torch.randn(rows, K).bfloat16()
    w, scale = weights(int8_weight)
    got = aten._weight_int8pack_mm(x.to(ocl_device), w.to(ocl_device), scale.bfloat16().to(ocl_device))
    exact = (x.double() @ w.double().t()) * scale.bfloat16().double()
    torch.testing.assert_close(got.cpu().double(), exact, rtol=2**-7, atol=0.3)

    q, sz = torch.randint(0, 16, (N, K), dtype=torch.int32), torch.randn(K // GROUP, N, 2).bfloat16()
    full = [sz[..., i].t().double().repeat_interleave(GROUP, 1) for i in (0, 1)]
    exact = x.double() @ ((q.double() - 8) * full[0] + full[1]).t()
    both = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
    packed = aten._convert_weight_to_int4pack(both.to(ocl_device), 2)
    plain = aten._convert_weight_to_int4pack_for_cpu(q.to(ocl_device), 2)
    for got in (
        aten._weight_int4pack_mm(x.to(ocl_device), packed, GROUP, sz.to(ocl_device)),
        aten._weight_int4pack_mm_for_cpu(x.to(ocl_device), plain, GROUP, sz.to(ocl_device)),
    ):
        torch.testing.assert_close(got.cpu().double(), exact, rtol=2**-6, atol=2.0)

    a, b = (
        torch.randint(-128, 128, (rows, 2050), dtype=torch.int8),
        torch.randint(-128, 128, (2050, 24), dtype=torch.int8),
    )
    a[0], b[:, 0] = -128, -128
    assert torch.equal(torch._int_mm(a.to(ocl_device), b.to(ocl_device)).cpu(), (a.long() @ b.long()).int())
    assert dict(torch.ocl.fallback_counts()) == before


def fake_quantised(x: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.fake_quantize_per_tensor_affine(x, 0.125, 3, -128, 127),
        torch.fake_quantize_per_tensor_affine(x, scale[0], zero[0], 0, 255),
        torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -128, 127),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fake_quantisation(ocl_device: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, scale, zero = torch.randn(16, 8) * 9, torch.rand(8) * 0.1 + 0.01, torch.arange(-4, 4, dtype=torch.int32)
    x = torch.cat([x, torch.full((1, 8), float("nan"))]).to(dtype)
    before = dict(torch.ocl.fallback_counts())

    def run(function: Callable[..., Any], device: str) -> list[Tensor]:
        leaf = x.to(device, copy=True).requires_grad_()
        results = function(leaf, scale.to(device), zero.to(device))
        sum(((i + 1) * r).sum() for i, r in enumerate(results)).backward()
        assert leaf.grad is not None
        return [r.detach().cpu() for r in (*results, leaf.grad)]

    expected = run(fake_quantised, "cpu")
    for function in (fake_quantised, torch.compile(fake_quantised, backend="ocl", dynamic=False)):
        for got, wanted in zip(run(function, ocl_device), expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)
    assert dict(torch.ocl.fallback_counts()) == before


def test_dynamic_quantisation(ocl_device: str) -> None:
    """Activations are quantised by row, weights by column: one launch for the row, one for the product with both scales."""
    w, scale = weights(int8_weight)

    def linear(x: Tensor, w: Tensor, scale: Tensor, product: Callable[..., Tensor] = torch._int_mm) -> Tensor:
        step = x.abs().amax(1, keepdim=True) / 127
        q = (x / step).round().clamp(-128, 127).to(torch.int8)
        return product(q, w.t()).to(x.dtype) * step * scale

    x = torch.randn(2, K)
    arguments = [t.to(ocl_device) for t in (x, w, scale)]
    with torch.no_grad():
        kernels = [k for g in torch_ocl_compile.explain(linear, *arguments).graphs for k in g.kernels]
        got = torch.compile(linear, backend="ocl", dynamic=False, options={"fallback": "error"})(*arguments)
    # PyTorch's own product of int8 saturates pairs of products on CPUs with AVX2 alone.
    exact = linear(x, w, scale, lambda a, b: a.long() @ b.long())
    torch.testing.assert_close(got.cpu(), exact, rtol=1e-5, atol=1e-4)
    assert len(kernels) == 2, [(k.kind, k.origin) for k in kernels]


@pytest.mark.sampled(first=1, every=0)
def test_package_with_float8_weights(ocl_device: str, tmp_path: Path) -> None:
    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            w, scale = weights(float8_weight)
            self.w, self.scale = (torch.nn.Parameter(t, requires_grad=False) for t in (w, scale))

        def forward(self, x: Tensor) -> Tensor:
            return float8_weight(x, self.w, self.scale)

    model, x = Linear().eval(), torch.randn(1, K)
    package.save(tmp_path / "model.ocl", model, (x,))
    got = ocl_run.load(tmp_path / "model.ocl")(x)
    torch.testing.assert_close(torch.as_tensor(got), model(x), rtol=1e-5, atol=1e-3)
