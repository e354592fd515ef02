# torch_ocl_compile/decompositions/matrix_exp.py: the exponential of matrices by scaling and squaring.
"""exp(A) = exp(A / 2^s)^(2^s), where s makes A / 2^s so small that a Taylor polynomial has the precision of the dtype. The
polynomial is evaluated in powers of A^q (Paterson and Stockmeyer). Each matrix has its own s, so the number of squarings is fixed.

The size of A counts as max(|A^2|^(1/2), |A^3|^(1/3)), which may be far below its norm, for example for the matrices
[[A, G], [0, A]] that give gradients. Source: Al-Mohy and Higham, "A New Scaling and Squaring Algorithm for the Matrix
Exponential", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor


@dataclass(frozen=True)
class Precision:
    degree: int  # Of the polynomial, a multiple of `block`.
    block: int  # The powers of A up to this one are computed, at least three.
    largest: float  # The largest size of A / 2^s.
    squarings: int  # The result of matrices of sizes above largest * 2^squarings is NaN.


SQUARINGS_AT_ONCE = 8
PRECISIONS = {torch.float32: Precision(15, 3, 2.0, 32), torch.float64: Precision(24, 4, 2.0, 64)}


def _norm(a: Tensor) -> Tensor:
    """Returns the 1-norms of matrices [n, m, m]: [n, 1, 1]."""
    return a.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)


def _power_of_two(exponent: Tensor) -> Tensor:
    made: Tensor = aten.ldexp.Tensor(torch.ones_like(exponent), exponent)
    return made


def _polynomial(powers: Sequence[Tensor], p: Precision) -> Tensor:
    """Returns the Taylor polynomial of exp, from the powers of A up to p.block."""

    def part(first: int, terms: int) -> Tensor:
        made = powers[0] / float(math.factorial(first))
        for k in range(1, terms):
            made = made + powers[k] / float(math.factorial(first + k))
        return made

    total = part(p.degree - p.block, p.block + 1)
    for first in reversed(range(0, p.degree - p.block, p.block)):
        total = torch.bmm(total, powers[p.block]) + part(first, p.block)
    return total


@decompose(aten.linalg_matrix_exp.default)
def matrix_exp(a: Tensor) -> Any:
    """Computes in float32 for halves."""
    if a.dtype in (torch.float16, torch.bfloat16):
        return matrix_exp(a.to(torch.float32)).to(a.dtype)
    p = PRECISIONS.get(a.dtype.to_real())
    if p is None:
        return NotImplemented
    if a.numel() == 0:
        return a.clone(memory_format=torch.contiguous_format)
    stack = a[None] if a.dim() == 2 else a.flatten(0, -3)
    # Powers of a matrix of norm 1 do not overflow.
    exponent = _norm(stack).log2().ceil().clamp(min=-100)
    i = torch.arange(a.shape[-1], device=a.device)
    unit = (i[:, None] == i[None, :]).to(a.dtype).expand(stack.shape)
    powers = [unit, stack * _power_of_two(-exponent)]
    while len(powers) <= p.block:
        powers.append(torch.bmm(powers[-1], powers[1]))
    size = torch.maximum(_norm(powers[2]) ** (1 / 2), _norm(powers[3]) ** (1 / 3)) * _power_of_two(exponent)
    times = (size / p.largest).log2().ceil().clamp(0, p.squarings)
    scale = torch.where(size <= p.largest * 2.0**p.squarings, _power_of_two(exponent - times), math.nan)
    factor = torch.ones_like(scale)
    for k in range(1, len(powers)):
        factor = factor * scale
        powers[k] = powers[k] * factor
    return _squared(_polynomial(powers, p), times, p.squarings).reshape(a.shape)


def _squared(a: Tensor, times: Tensor, most: int) -> Tensor:
    """Returns each matrix squared `times` times, at most `most` times, a multiple of SQUARINGS_AT_ONCE.

    Several squarings are computed before the right one is chosen, so that they are all the same kernel.
    """
    for done in range(0, most, SQUARINGS_AT_ONCE):
        result = power = a
        for k in range(done + 1, done + SQUARINGS_AT_ONCE + 1):
            power = torch.bmm(power, power)
            is_next = times >= k if k == done + SQUARINGS_AT_ONCE else times == k
            result = torch.where(is_next, power, result)
        a = result
    return a
