"""tests/device/test_templates_item.py: each template of the CPU family, built alone with its own dense store, against torch in fp64."""
import pytest
import torch
import torch.nn.functional as F

from cl_binding import Long, devices

DEVICES = devices()
WIDTHS = [16, 8, 4]  # VW
pytestmark = pytest.mark.skipif(not DEVICES, reason="no OpenCL CPU device")
ceil = lambda a, b: -(-a // b)


@pytest.fixture(params=DEVICES, ids=repr)
def device(request):
    return request.param


def agree(got: torch.Tensor, reference: torch.Tensor, terms: int) -> None:
    """fp32 sums of `terms` products of N(0, 1) numbers: rms error about 2.5e-8 * terms, the largest of many elements up to 8 times that."""
    assert not got.isnan().any(), "not every element was written"
    error = (got.double() - reference).abs().max().item()
    assert error <= 4e-7 * (terms + 8), f"error {error:.2e} for {terms} terms"


def poison(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"))


def pack_panels(b: torch.Tensor, panel: int) -> torch.Tensor:
    """[..., K, N] -> [..., ceil(N/panel), K, panel], zero-padded."""
    k, n = b.shape[-2:]
    b = F.pad(b, (0, ceil(n, panel) * panel - n))
    return b.unflatten(-1, (-1, panel)).transpose(-2, -3).contiguous()


def gemm(device, a, b, a_layout=0, b_layout=0, **macros):
    """a [B, M, K], b [B, K, N] of any strides (the layouts say which fast path is taken)."""
    m = dict(VW=16, MR=6, NV=4, MT=4) | macros
    tn = m["NV"] * m["VW"]
    (batch, M, K), N = a.shape, b.shape[2]
    if b_layout == 0:
        p = pack_panels(b, m.get("PANEL", tn))
        strides = (0, 0, 0 if b.stride(0) == 0 else p[0].numel())
    else:
        p, strides = b, (b.stride(1), b.stride(2), b.stride(0))
    y = poison(batch, M, N)
    k = device.build("gemm_item.cl", "gemm_item", A_COL_MAJOR=a_layout, B_IN_PLACE=b_layout, **m)
    k((ceil(M, m["MR"] * m["MT"]), ceil(N, tn), batch), a, p, M, N, K, a.stride(1), a.stride(2), strides[0], strides[1],
      1, Long(a.stride(0)), Long(0), Long(strides[2]), Long(0), y, M, N)
    agree(y, a.double() @ b.double(), K)


@pytest.mark.parametrize("M", [1, 5, 6, 7, 24, 25])
@pytest.mark.parametrize("N", [1, 15, 63, 64, 65, 129])
def test_gemm_sizes(device, M, N):
    for K in (1, 3, 64):
        gemm(device, torch.randn(1, M, K), torch.randn(1, K, N))
        gemm(device, torch.randn(2, M, K), torch.randn(2, K, N), b_layout=1)


@pytest.mark.parametrize("K", [511, 512, 513, 1030])
def test_gemm_long_k(device, K):
    gemm(device, torch.randn(1, 30, K), torch.randn(1, K, 70))
    gemm(device, torch.randn(1, 30, K), torch.randn(1, K, 70), b_layout=1)


@pytest.mark.parametrize("b_layout", [0, 1, 2])
@pytest.mark.parametrize("a_layout", [0, 1, 2])
def test_gemm_layouts(device, a_layout, b_layout):
    M, N, K = 31, 75, 300
    a = [torch.randn(3, M, K + 2)[:, :, :K], torch.randn(3, K, M + 1)[:, :, :M].mT, torch.randn(3, M, 2 * K)[:, :, ::2]][a_layout]
    b = [torch.randn(3, K, N), torch.randn(3, K, N + 5)[:, :, :N], torch.randn(3, N, K).mT][b_layout]
    gemm(device, a, b, a_layout, b_layout)
    gemm(device, a[:1].expand(3, -1, -1), b, a_layout, b_layout)
    gemm(device, a, b[:1].expand(3, -1, -1), a_layout, b_layout)


@pytest.mark.parametrize("VW", WIDTHS)
def test_gemm_vector_widths(device, VW):
    for MR, NV, panel in ((6, 4, 64 // VW), (12, 2, 1), (4, 2, 1), (6, 1, 1)):
        for b_layout in (0, 1):
            gemm(device, torch.randn(1, 2 * MR + 1, 20), torch.randn(1, 20, 3 * NV * VW - 1), 0, b_layout, VW=VW, MR=MR, NV=NV, MT=2)
    gemm(device, torch.randn(1, 7, 20), torch.randn(1, 20, 100), VW=VW, NV=1, PANEL=32)
    gemm(device, torch.randn(1, 7, 20), torch.randn(1, 20, 100), VW=VW, EPILOGUE_STAGED=1)


@pytest.mark.parametrize("M", [1, 2, 8])
def test_gemm_few_rows(device, M):
    for K in (1, 7, 8, 700):
        gemm(device, torch.randn(1, M, K), torch.randn(1, K, 100), MR=M, NV=2 if M > 2 else 4, MT=1, K_CHAINS=8 // M if M > 1 else 4)
