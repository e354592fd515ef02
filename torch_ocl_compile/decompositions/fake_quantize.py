# torch_ocl_compile/decompositions/fake_quantize.py: rounding to the numbers of a quantised type, for training that is aware of it.
"""x becomes (q - zero_point) * scale for the integer q nearest to x / scale + zero_point, within its limits. The second result says
where q was within them: there, the gradient passes. As in PyTorch's kernels, the reciprocal of the scale is rounded to fp32."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from torch_ocl_compile.decompositions.registry import decompose

Tensor = torch.Tensor


def _quantised(x: Tensor, scale: Any, inverse: Any, zero: Any, low: int, high: int) -> tuple[Tensor, Tensor]:
    wide = x.double() if x.dtype is torch.float64 else x.float()
    q = (wide * inverse).round() + zero
    # fmax gives `low` for NaN.
    kept = torch.fmin(
        torch.fmax(q, torch.full((), low, dtype=q.dtype, device=q.device)),
        torch.full((), high, dtype=q.dtype, device=q.device),
    )
    return ((kept - zero) * scale).to(x.dtype), (q >= low) & (q <= high)


@decompose("aten.fake_quantize_per_tensor_affine_cachemask.default")
def per_tensor(x: Tensor, scale: Any, zero_point: int, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor]:
    if isinstance(scale, float):
        scale = ctypes.c_float(scale).value
        return _quantised(x, scale, ctypes.c_float(1 / scale).value, zero_point, quant_min, quant_max)
    return _quantised(x, scale, 1 / scale, zero_point, quant_min, quant_max)


@decompose("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def with_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    scale = scale.reshape(()).float()
    y, mask = _quantised(x, scale, 1 / scale, zero_point.reshape(()), quant_min, quant_max)
    enabled = fake_quant_enabled.reshape(()) != 0
    return torch.where(enabled, y, x), mask | ~enabled


@decompose("aten.fake_quantize_per_channel_affine_cachemask.default")
def per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    shape = [1] * x.dim()
    shape[axis] = -1
    scale, zero = scale.reshape(shape), zero_point.reshape(shape)
    if zero.is_floating_point():  # The sum with the zero is rounded.
        wide = x.double() if x.dtype is torch.float64 else x.float()
        q = (zero + wide * (1 / scale)).round()
        return ((q.clamp(quant_min, quant_max) - zero) * scale).to(x.dtype), (q >= quant_min) & (q <= quant_max)
    return _quantised(x, scale, 1 / scale, zero, quant_min, quant_max)
