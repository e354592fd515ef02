# tests/device/kernels/test_decoding_group.py: a decoder's step of one token in the kernels for GPUs: few launches, right results.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.device.kernels.test_quantized import int4_stacked, weights

Tensor = torch.Tensor
OPTIONS: dict[str, Any] = {"fallback": "error", "kernel_family": "group"}


def ran(function: Callable[..., Any], device: str, *tensors: Tensor) -> tuple[Any, int]:
    """Returns the results of the kernels for GPUs, and the number of launches of a call."""
    compiled = torch.compile(function, backend="ocl", dynamic=False, options=OPTIONS)
    with torch.no_grad():
        compiled(*tensors)
        with torch.ocl.record() as launches:
            result = compiled(*tensors)
    return result, len(launches)


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_int4_of_a_byte_read_the_row_in_place(ocl_device: str, dtype: torch.dtype, start: int) -> None:
    weight, scales = weights(int4_stacked)
    x = torch.randn(1, 260, dtype=dtype)[:, start : start + 256]
    held = torch.zeros(1, 260, dtype=dtype, device=ocl_device)
    held[:, start : start + 256] = x.to(ocl_device)
    exact = int4_stacked(x.double(), weight, scales.to(dtype).double())
    got, launches = ran(
        int4_stacked, ocl_device, held[:, start : start + 256], weight.to(ocl_device), scales.to(ocl_device, dtype)
    )
    assert launches == 1
    assert (got.cpu() - exact).abs().max() <= (1e-5 if dtype == torch.float32 else 2e-2) * exact.abs().max()
