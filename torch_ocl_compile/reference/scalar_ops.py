# torch_ocl_compile/reference/scalar_ops.py: the scalar ops of the IR as functions of torch tensors.
"""`operation("add")(a, b)` computes the row `add` of csrc/ir/ops.def, whose column `reference` says how. The operands must
have the types of `converted_operands`. The other functions are those that the rows use beside torch's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.dtypes import IR_DTYPES, TORCH_DTYPES
from torch_ocl_compile.reference.philox import bits_of, lane_of, normal_of, philox, uniform_of

Tensor = torch.Tensor

OPS = {row.name: row for row in ir.ops()}


def _nonzero(divisor: Tensor) -> Tensor:
    return torch.where(divisor == 0, 1, divisor)


def truncdiv(a: Tensor, b: Tensor) -> Tensor:
    """Returns the quotient, rounded to zero; integers divided by 0 give 0."""
    if a.is_floating_point():
        return torch.div(a, b, rounding_mode="trunc")
    # PyTorch's CPU kernel ends the process if it divides the least integer by -1.
    by_minus_one = (b < 0) & (b == -1)
    quotient = torch.div(a, torch.where(by_minus_one, 1, _nonzero(b)), rounding_mode="trunc")
    return torch.where(b == 0, 0, torch.where(by_minus_one, -quotient, quotient))


def floordiv(a: Tensor, b: Tensor) -> Tensor:
    """Returns the quotient, rounded down; integers divided by 0 give 0."""
    if a.is_floating_point():
        return torch.div(a, b, rounding_mode="floor")
    return torch.where(b == 0, 0, torch.div(a, _nonzero(b), rounding_mode="floor"))


def fmod_or_0(a: Tensor, b: Tensor) -> Tensor:
    """Returns the remainder with the sign of a; for integers, the remainder of 0 is 0."""
    return torch.fmod(a, b) if a.is_floating_point() else torch.where(b == 0, 0, torch.fmod(a, _nonzero(b)))


def remainder_or_0(a: Tensor, b: Tensor) -> Tensor:
    """Returns the remainder with the sign of b; for integers, the remainder of 0 is 0."""
    return torch.remainder(a, b) if a.is_floating_point() else torch.where(b == 0, 0, torch.remainder(a, _nonzero(b)))


def power(a: Tensor, b: Tensor) -> Tensor:
    """Returns a ** b. Integers wrap around; a negative exponent gives 0, except for 1 and -1."""
    if a.is_floating_point():
        return torch.pow(a, b)
    positive = torch.pow(a, b.clamp(min=0))
    inverse = torch.where(a == 1, 1, torch.where(a == -1, torch.where(b % 2 == 0, 1, -1), 0))
    return torch.where(b < 0, inverse.to(a.dtype), positive)


def gcd(a: Tensor, b: Tensor) -> Tensor:
    """Returns the greatest common divisor; of truth values, whether one of them is true."""
    return a | b if a.dtype is torch.bool else torch.gcd(a, b)


def _shift(shifted: Callable[..., Tensor], a: Tensor, b: Tensor, beyond: Tensor) -> Tensor:
    width = a.element_size() * 8
    return torch.where((b >= 0) & (b < width), shifted(a, b.clamp(0, width - 1)), beyond)


def shift_left(a: Tensor, b: Tensor) -> Tensor:
    return _shift(torch.bitwise_left_shift, a, b, torch.zeros_like(a))


def shift_right(a: Tensor, b: Tensor) -> Tensor:
    return _shift(torch.bitwise_right_shift, a, b, torch.where(a < 0, -1, 0).to(a.dtype))


def order_key(x: Tensor) -> Tensor:
    """Returns an integer that orders like the number. NaN is last; -0 and 0 are equal."""
    dtype = torch.int64 if x.dtype is torch.float64 else torch.int32
    bits, largest = (x + 0.0).contiguous().view(dtype), torch.iinfo(dtype).max
    return torch.where(torch.isnan(x), largest, torch.where(bits < 0, bits ^ largest, bits))


_OWN = (truncdiv, floordiv, fmod_or_0, remainder_or_0, power, gcd, shift_left, shift_right, order_key)
_RANDOM = (philox, uniform_of, lane_of, normal_of, bits_of)
# The functions that references in the rows may call, by name.
NAMES: dict[str, Any] = {**vars(torch), **vars(torch.special), **{f.__name__: f for f in (*_OWN, *_RANDOM)}}


@functools.cache
def operation(name: str) -> Callable[..., Tensor]:
    """Returns the function of a row of ops.def, on tensors of its compute type."""
    function: Callable[..., Tensor] = eval(f"lambda a, b=None, c=None: {OPS[name].reference}", NAMES)
    return function


def converted_operands(name: str, values: Sequence[Tensor]) -> list[Tensor]:
    """Returns the operands, converted to the types in which the op computes."""
    dtypes = ir.operand_dtypes(name, [IR_DTYPES[v.dtype] for v in values])
    return [v.to(TORCH_DTYPES[dtype]) for v, dtype in zip(values, dtypes, strict=True)]
