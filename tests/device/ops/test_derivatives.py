# tests/device/ops/test_derivatives.py: gradients of ops with formulas of their own, against differences of results in fp64.
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

L, HEADS = torch.linalg, (1, 2, 24, 16)
CASES = {
    "fft of a prime length": (lambda x: torch.fft.fft(x).abs(), (2, 37)),
    "irfft of rfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) ** 2, n=30), (2, 31)),
    "svd": (lambda x: (lambda u, s, v: [s, (u * s.cos()) @ v])(*L.svd(x, full_matrices=False)), (20, 18)),
    "eigh": (lambda x: (lambda e, v: [e, (v * e.sin()) @ v.mT])(*L.eigh(x + x.mT)), (20, 20)),
    "cholesky": (lambda x: L.cholesky(x @ x.mT + torch.eye(40, dtype=x.dtype, device=x.device)), (40, 40)),
    "solve": (lambda x: L.solve(x[:, :40], x[:, 40:]), (40, 43)),
    "qr": (lambda x: L.qr(x), (40, 35)),
    "sort and median": (lambda x: [x.sort(-1).values ** 2, x.median(-1).values, x.kthvalue(5).values], (3, 50)),
    "running": (lambda x: [x.cumsum(-1) ** 2, x.cumprod(-1), x.logcumsumexp(-1), x.cummax(-1).values ** 2], (3, 20)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x.flip(-2), x.cos(), is_causal=True), HEADS),
    "flex attention": (lambda x: flex_attention(x, x.flip(-2), x.cos(), lambda s, b, h, q, k: s.tanh() + q - k), HEADS),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_limit_of_differences(name: str, compiled: bool, ocl_device: str) -> None:
    function, shape = CASES[name]
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(ocl_device)
    used = torch.compile(function, backend="ocl") if compiled else function
    assert torch.autograd.gradcheck(used, (x.requires_grad_(),), fast_mode=True)
