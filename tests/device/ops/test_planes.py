# tests/device/ops/test_planes.py: eager convolutions in 16 bits on GPUs: those of 1 x 1 are products that read planes in place.
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.device.exact import assert_as_exact
from torch_ocl_compile import _C, config

# Images, filters and padding -> whether forward, data gradient and weight gradient are products.
CASES = {
    "planes": ((3, 16, 8, 8), (24, 16, 1, 1), 0, (True, True, True)),
    "small planes": ((4, 64, 2, 4), (64, 64, 1, 1), 0, (True, True, False)),
    "odd planes": ((2, 8, 5, 5), (8, 8, 1, 1), 0, (False, False, False)),
    "padded": ((2, 8, 8, 6), (8, 8, 1, 1), 1, (False, False, False)),
    "3 x 3": ((2, 8, 10, 10), (16, 8, 3, 3), 0, (False, False, False)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("channels_last", [False, True], ids=["planes", "pixels"])
def test_convolution(ocl_device: str, case: str, dtype: torch.dtype, channels_last: bool) -> None:
    torch.manual_seed(0)
    x_shape, w_shape, padding, products = CASES[case]
    x, w, bias = torch.randn(x_shape).to(dtype), torch.randn(w_shape).to(dtype), torch.randn(w_shape[0]).to(dtype)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)

    gradient = torch.linspace(-1, 1, w_shape[0]).to(dtype)

    def results(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
        leaves = [v.detach().requires_grad_() for v in (x, w, bias)]
        y = F.conv2d(*leaves, padding=padding)
        return [y.detach(), *torch.autograd.grad(y, leaves, gradient.view(-1, 1, 1).expand_as(y).contiguous())]

    inputs = (x, w, bias, gradient)
    _C.forget_eager_plans()
    with config.override(kernel_family="group"), torch.ocl.record() as launches:
        got = results(*(v.to(ocl_device) for v in inputs))
        torch.ocl.synchronize()
    assert_as_exact([v.cpu() for v in got], results, *inputs)
    counted = sum(launch.kind == "gemm" for launch in launches)
    assert counted == (0 if channels_last else sum(products))
