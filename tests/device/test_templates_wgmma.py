# tests/device/test_templates_wgmma.py: the matrix-unit kernels at edge sizes, where a device has the units.
"""The error against fp64 is at most that of a plain fp32 sum; the portable kernels of the same device are the second reference."""

import pytest
import torch

from torch_ocl_compile import config

aten = torch.ops.aten

GEMMS = [  # M, N, K, transposed operands
    (128, 128, 32, ""), (64, 64, 16, ""), (129, 130, 33, ""), (257, 65, 100, "a"), (100, 200, 77, "b"), (300, 260, 1000, "ab"),
    (64, 4096, 512, "b"), (1000, 72, 4096, ""), (33, 36, 64, "a"),
]  # fmt: skip
CONVOLUTIONS = [  # batch, C, K, H, W, R, S, stride, padding, dilation, groups
    (2, 64, 64, 14, 14, 3, 3, 1, 1, 1, 1), (3, 3, 64, 31, 29, 7, 7, 2, 3, 1, 1), (2, 4, 32, 9, 9, 3, 3, 1, 1, 1, 1),
    (2, 36, 72, 13, 11, 3, 3, 2, 1, 1, 1), (2, 128, 256, 7, 7, 1, 1, 1, 0, 1, 1), (2, 64, 96, 15, 15, 1, 1, 2, 0, 1, 1),
    (1, 32, 64, 20, 17, 3, 5, 1, 2, 2, 1), (2, 64, 128, 12, 12, 3, 3, 1, 1, 1, 2), (2, 40, 48, 10, 10, 5, 5, 3, 2, 1, 1),
]  # fmt: skip


@pytest.fixture
def unit_device(ocl_device):
    if not torch.ocl.get_device_properties(ocl_device).has_wgmma:
        pytest.skip("the device has no warpgroup matrix units")
    return ocl_device


def check(call, inputs, device, folder):
    """Runs `call` compiled and compares with fp64; a kernel of the family must be among the written ones."""
    torch._dynamo.reset()
    with config.override(dump=str(folder)):
        got = torch.compile(call, backend="ocl", options={"fallback": "error"}, dynamic=False)(
            *(x.to(device) for x in inputs)
        )
    assert any("wgmma.mma_async" in path.read_text() for path in folder.rglob("*.cl")), "another template was chosen"
    exact, plain = call(*(x.double() for x in inputs)), call(*inputs)
    error, limit = ((y.double().cpu() - exact).pow(2).mean().sqrt() for y in (got, plain))
    assert torch.isfinite(got).all()
    assert error <= 2 * limit + 1e-7 * exact.pow(2).mean().sqrt(), (error, limit)


@pytest.mark.parametrize("m,n,k,transposed", GEMMS)
def test_gemm(unit_device, m, n, k, transposed, tmp_path):
    torch.manual_seed(m + n + k)
    a = torch.randn(k, m).t() if "a" in transposed else torch.randn(m, k)
    b = torch.randn(n, k).t() if "b" in transposed else torch.randn(k, n)
    check(lambda a, b: torch.relu(a @ b + 1), (a, b), unit_device, tmp_path)


def test_gemm_of_an_offset_view(unit_device, tmp_path):
    a, b = torch.randn(70, 131)[1:, 3:], torch.randn(128, 67)[:, 1:]
    check(torch.mm, (a, b), unit_device, tmp_path)


def test_batched(unit_device, tmp_path):
    check(torch.bmm, (torch.randn(5, 65, 40), torch.randn(5, 40, 66)), unit_device, tmp_path)


@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=lambda s: "-".join(map(str, s)))
def test_convolution(unit_device, shape, kind, tmp_path):
    batch, c, k, h, w, r, s, stride, padding, dilation, groups = shape
    torch.manual_seed(sum(shape))
    x, weight = torch.randn(batch, c, h, w), torch.randn(k, c // groups, r, s)
    rest = (None, (stride,) * 2, (padding,) * 2, (dilation,) * 2, False, (0, 0), groups)
    dy = torch.randn_like(aten.convolution(x, weight, *rest))
    if kind == "forward":
        check(lambda x, w: aten.convolution(x, w, *rest) + 1, (x, weight), unit_device, tmp_path)
    else:
        if (kind == "data" and c < 24) or (kind == "weight" and r * s * c < 24):
            pytest.skip("few channels: the portable kernel")
        mask, place = ((True, False, False), 0) if kind == "data" else ((False, True, False), 1)
        check(
            lambda dy, x, w: aten.convolution_backward(dy, x, w, *rest, mask)[place], (dy, x, weight), unit_device, tmp_path
        )
