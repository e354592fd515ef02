# torch_ocl_compile/reference/philox.py: Philox 4x32-10 with torch ops. This defines our random numbers.
"""Random bits are a function of (seed, offset, element). Source: Salmon, Moraes, Dror, Shaw 2011. The key is the seed,
the counter is {offset, element} as 64-bit halves, for uniform numbers {offset, element // 4}. Kernels compute the same in
kernels/base/ops.cl."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_BUMPS = (0x9E3779B9, 0xBB67AE85)


def _multiply(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the (high, low) words of the product of two 32-bit numbers. The int64 intermediate results cannot
    overflow."""
    low = a * (b & 0xFFFF)
    high = a * (b >> 16) + (low >> 16)
    return (high >> 16) & _LOW, ((high << 16) | (low & 0xFFFF)) & _LOW


def philox(seed: torch.Tensor, offset: torch.Tensor, element: torch.Tensor) -> list[torch.Tensor]:
    """Returns four random 32-bit words per element, as int64. The arguments are int64 and broadcast."""
    seed, offset, element = torch.broadcast_tensors(seed, offset, element)
    k0, k1 = seed & _LOW, (seed >> 32) & _LOW
    c0, c1, c2, c3 = offset & _LOW, (offset >> 32) & _LOW, element & _LOW, (element >> 32) & _LOW
    for _ in range(10):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _BUMPS[0]) & _LOW, (k1 + _BUMPS[1]) & _LOW
    return [c0, c1, c2, c3]


def uniform_of(words: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the upper 24 bits of word 0 times 2^-24: a number in [0, 1), exact in fp32."""
    return (words[0] >> 8).to(torch.float32) * 2.0**-24


def lane_of(words: Sequence[torch.Tensor], lane: torch.Tensor) -> torch.Tensor:
    """Returns uniform_of of the word that `lane` (0 to 3) selects, elementwise."""
    shape = torch.broadcast_shapes(words[0].shape, lane.shape)
    word = torch.gather(torch.stack(list(words)).expand(4, *shape), 0, lane.expand(1, *shape)).squeeze(0)
    return uniform_of([word])


def normal_of(words: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns a normal number by Box-Muller from words 0 and 1. 1 - u avoids log(0)."""
    u0, u1 = ((w >> 8).to(torch.float32) * 2.0**-24 for w in words[:2])
    return torch.sqrt(-2 * torch.log(1 - u0)) * torch.cos(2 * math.pi * u1)


def bits_of(words: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns 64 random bits as int64: word 1 (high) and word 0 (low)."""
    return (words[1] << 32) | words[0]


def _elements(size: Sequence[int]) -> torch.Tensor:
    return torch.arange(math.prod(size)).reshape(list(size))


def philox_uniform(seed: int, offset: int, size: Sequence[int]) -> torch.Tensor:
    element = _elements(size)
    return lane_of(philox(torch.tensor(seed), torch.tensor(offset), element // 4), element % 4)


def philox_normal(seed: int, offset: int, size: Sequence[int]) -> torch.Tensor:
    return normal_of(philox(torch.tensor(seed), torch.tensor(offset), _elements(size)))


def philox_bits(seed: int, offset: int, size: Sequence[int]) -> torch.Tensor:
    return bits_of(philox(torch.tensor(seed), torch.tensor(offset), _elements(size)))
