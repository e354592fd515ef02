"""tests/device/test_templates_pairs.py: gemm/pairs_item.cl alone, on processors that multiply pairs of bf16, against fp64."""

import pytest
import torch
from cl_binding import Long, devices

from torch_ocl_compile import _C, explain

KNOWN = [
    index
    for index in range(torch.ocl.device_count())
    if any(kernel == "gemm_pairs_item" for kernel, *_ in _C.exec.kernels_to_check(index))
]
DEVICES = devices() if KNOWN else []
pytestmark = [pytest.mark.skipif(not DEVICES, reason="no such processor"), pytest.mark.sampled(first=5)]


def ceil(a: int, b: int) -> int:
    return -(-a // b)


@pytest.fixture(params=DEVICES, ids=repr)
def device(request):
    return request.param


def gemm(device, a, b, **macros):
    """Multiplies a [B, M, K] and b [B, K, N], and compares with fp64. Their strides decide the layouts."""
    m = dict(MR=6, NV=4, MT=4) | macros
    (batch, M, K), N = a.shape, b.shape[2]
    a_layout = 0 if a.stride(2) == 1 else 1
    b_layout = 0 if b.stride(2) == 1 else 1 if b.stride(1) == 1 else 2
    y = torch.full((batch, M, N), float("nan"))
    k = device.build("base/pairs.cl gemm/pairs_item.cl", "gemm_pairs_item", A_LAYOUT=a_layout, B_LAYOUT=b_layout, **m)
    k(
        (ceil(M, m["MR"] * m["MT"]), ceil(N, m["NV"] * 16), batch),
        whole(a),
        whole(b),
        M,
        N,
        K,
        1,
        Long(a.stride(0)),
        Long(0),
        a.stride(1),
        a.stride(2),
        Long(b.stride(0)),
        Long(0),
        b.stride(1),
        b.stride(2),
        y,
    )
    assert not y.isnan().any(), "not every element was written"
    torch.testing.assert_close(y.double(), a.double() @ b.double(), rtol=0, atol=4e-7 * (K + 8))


def whole(x: torch.Tensor) -> torch.Tensor:
    """Returns all elements of the storage, as the integers that the binding can pass."""
    return torch.as_strided(x, (x.untyped_storage().size() // 2,), (1,), 0).view(torch.int16)


def matrix(*shape: int, padding: int = 0) -> torch.Tensor:
    return torch.randn(*shape[:-1], shape[-1] + padding).bfloat16()[..., : shape[-1]]


def test_values_beyond_the_numbers(device):
    """inf and nan are those of fp32, and an odd depth does not read beyond a row."""
    a, b = matrix(1, 7, 5, padding=1), matrix(1, 5, 64)
    torch.as_strided(a, (7, 6), (6, 1))[:, 5] = float("nan")
    gemm(device, a, b)


def test_networks_use_it(selected_devices):
    """A linear layer in bf16, and its gradients."""
    selected = [device for device in selected_devices if torch.device(device).index in KNOWN]
    if not selected:
        pytest.skip("no such processor is selected")
    processor = selected[0]
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
        torch.testing.assert_close(got.detach().cpu().double(), want, rtol=2**-8, atol=1e-4)
