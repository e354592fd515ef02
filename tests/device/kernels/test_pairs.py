# tests/device/kernels/test_pairs.py: products and convolutions on processors that multiply pairs of bf16, against fp64.

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from torch_ocl_compile import _C, explain


@pytest.fixture
def processor(selected_devices: list[str]) -> str:
    for device in selected_devices:
        if any(kernel == "gemm_pairs_item" for kernel, *_ in _C.exec.kernels_to_check(torch.device(device).index)):
            return device
    pytest.skip("no such processor is selected")


def test_values_beyond_the_numbers(processor: str) -> None:
    """inf and nan are those of fp32, and an odd depth does not read beyond a row."""
    rows = torch.full((70, 6), float("nan"), dtype=torch.bfloat16)
    rows[:, :5] = torch.randn(70, 5)
    rows[3, 2], rows[4, 1] = float("inf"), float("nan")
    b = torch.randn(5, 150, dtype=torch.bfloat16)
    on_device = (rows.to(processor)[:, :5], b.to(processor))
    [product] = explain(torch.mm, *on_device).graphs[0].kernels
    assert product.variant.startswith("gemm_pairs_item ")
    got = torch.compile(torch.mm, backend="ocl")(*on_device).cpu().double()
    torch.testing.assert_close(got, rows[:, :5].double() @ b.double(), rtol=2**-8, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    ("channels", "filters", "groups", "stride", "dilation", "pairs"),
    [(32, 70, 1, 1, 1, True), (12, 36, 2, 2, 1, True), (96, 20, 1, 2, 2, True), (7, 24, 1, 1, 1, False)],
)
def test_convolutions(
    processor: str, channels: int, filters: int, groups: int, stride: int, dilation: int, pairs: bool
) -> None:
    """Forward and the gradient of the image, whose channels are the filters. An odd number of channels has no pairs."""
    x = torch.randn(2, channels, 11, 9).bfloat16()
    w = torch.randn(filters, channels // groups, 3, 3).bfloat16()

    def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, None, stride, 1, dilation, groups)

    leaf, filter_ = x.to(processor).requires_grad_(), w.to(processor)
    with torch.no_grad():
        kernels = explain(convolve, leaf, filter_).graphs[0].kernels
    assert any(k.variant.endswith("pairs of channels") for k in kernels) == pairs, [k.variant for k in kernels]
    y = torch.compile(convolve, backend="ocl")(leaf, filter_)
    dy = torch.randn(y.shape).bfloat16()
    y.backward(dy.to(processor))
    exact = x.double().requires_grad_()
    want = convolve(exact, w.double())
    want.backward(dy.double())
    assert leaf.grad is not None and exact.grad is not None
    for got, right in ((y.detach(), want.detach()), (leaf.grad, exact.grad)):
        torch.testing.assert_close(got.cpu().double(), right, rtol=2**-8, atol=1e-3)


def test_networks_use_it(processor: str) -> None:
    """A linear layer in bf16, and its gradients."""
    layer = torch.nn.Linear(200, 150, bias=False, device=processor, dtype=torch.bfloat16)
    x = torch.randn(70, 200, device=processor, dtype=torch.bfloat16, requires_grad=True)
    [product] = explain(layer, x).graphs[0].kernels
    assert product.variant.startswith("gemm_pairs_item ")
    dy = torch.randn(70, 150, device=processor, dtype=torch.bfloat16)
    x.grad = layer.weight.grad = None  # explain may have computed some
    y = torch.compile(layer, backend="ocl")(x)
    y.backward(dy)
    a, w, g = (t.detach().cpu().double() for t in (x, layer.weight, dy))
    for got, want in ((y, a @ w.T), (x.grad, g @ w), (layer.weight.grad, g.T @ a)):
        assert got is not None
        torch.testing.assert_close(got.detach().cpu().double(), want, rtol=2**-8, atol=1e-4)


def test_shorter_vectors_have_no_pairs(processor: str) -> None:
    """The instruction takes 16 words, so the kernels for a CPU with shorter vectors are others."""
    a, b = torch.randn(70, 200).bfloat16(), torch.randn(200, 150).bfloat16()
    product = torch.compile(torch.mm, backend="ocl", options={"vector_floats": 8})
    [kernel] = explain(product, a.to(processor), b.to(processor)).graphs[0].kernels
    assert kernel.variant.startswith("gemm_item "), kernel.variant
    got = product(a.to(processor), b.to(processor)).cpu()
    torch.testing.assert_close(got.double(), a.double() @ b.double(), rtol=2**-8, atol=1e-4)
