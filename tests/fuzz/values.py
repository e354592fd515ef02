# tests/fuzz/values.py: the tensors that programs start from; this text is copied into every script that is printed.
from __future__ import annotations

import torch


def make(
    device: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int, low: int = -4, high: int = 4
) -> torch.Tensor:
    """Multiples of 1/8 (integers for integer types) in [low, high]: sums and products of a few are exact in any order."""
    if dtype.is_complex:
        parts = [make("cpu", shape, dtype.to_real(), seed + 5000 * i, low, high) for i in range(2)]
        return torch.complex(*parts).to(device)
    generator = torch.Generator().manual_seed(seed)
    steps = 8 if dtype.is_floating_point else 1
    low = max(low, 0) if dtype in (torch.uint8, torch.bool) else low
    x = torch.randint(low * steps, high * steps + 1, shape, generator=generator)
    x = x % 2 == 1 if dtype is torch.bool else x / steps if dtype.is_floating_point else x
    return x.to(dtype).to(device)


def distinct(device: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """No two alike: multiples of 1/16, or integers."""
    count = torch.Size(shape).numel()
    x = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).view(shape) - count // 2
    return (x / 16 if dtype.is_floating_point else x).to(dtype).to(device)


def special(device: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """As `make`, with NaN, infinities and negative zeros among the values."""
    x = make("cpu", shape, dtype, seed)
    which = torch.randint(0, 12, shape, generator=torch.Generator().manual_seed(seed + 1))
    for i, value in enumerate((float("nan"), float("inf"), -float("inf"), -0.0)):
        x = torch.where(which == i, value, x).to(dtype)
    return x.to(device)


def limits(device: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Integers of the whole range, half of them near its ends: sums and products wrap around. Booleans as `make`."""
    if dtype is torch.bool:
        return make(device, shape, dtype, seed)
    generator = torch.Generator().manual_seed(seed)
    ends = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max, torch.iinfo(dtype).max // 3])
    near = ends[torch.randint(0, 3, shape, generator=generator)] + torch.randint(-3, 4, shape, generator=generator)
    any_bits = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < 0.5, near, any_bits).to(dtype).to(device)
