# tests/no_device/choices/test_many_cores.py: kernels of convolutions keep all cores of a CPU with many cores busy.
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import CAPS
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir


def weight_gradient(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    dy, flags = x.new_zeros(len(x), len(w), *x.shape[2:]), [False, True, False]
    return torch.ops.aten.convolution_backward(dy, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, flags)[1]


FUNCTIONS = {"forward": lambda x, w: F.conv2d(x, w, padding=1), "weight gradient": weight_gradient}


@pytest.mark.parametrize("units", [8, 16, 32])
@pytest.mark.parametrize("channels, size", [(64, 56), (128, 28), (256, 14), (512, 7)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_convolutions_have_a_work_group_for_each_core(function: str, channels: int, size: int, units: int) -> None:
    graphs: list[ir.Graph] = []
    with torch.no_grad():
        x, w = torch.randn(8, channels, size, size), torch.randn(channels, channels, 3, 3)
        compiled(FUNCTIONS[function], graphs, dynamic=False)(x, w)
    kernels = _C.exec.render(graphs[0], {**CAPS["cpu16"], "units": units})["kernels"]
    (groups,) = (math.prod(map(int, k["groups"])) for k in kernels if k["kind"] in ("winograd", "conv_weight"))
    assert groups / (math.ceil(groups / units) * units) > 0.65, groups
