# torch_ocl_compile/reference/scalar_ops.py: defines every scalar op of the IR as a function of torch tensors.
"""`operation("add")(a, b)` computes the row `add` of csrc/ir/ops.def. Operands must first be converted by
`converted_operands`. interpreter.py uses these functions to run graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.reference import philox

Tensor = torch.Tensor


def _integer_aware(on_floats: Callable[..., Tensor], on_integers: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *a: (on_floats if a[0].is_floating_point() else on_integers)(*a)


def _nonzero(divisor: Tensor) -> Tensor:
    return torch.where(divisor == 0, 1, divisor)


def _truncdiv(a: Tensor, b: Tensor) -> Tensor:
    # PyTorch's CPU kernel ends the process if it divides the least integer by -1.
    by_minus_one = (b < 0) & (b == -1)
    quotient = torch.div(a, torch.where(by_minus_one, 1, _nonzero(b)), rounding_mode="trunc")
    return torch.where(b == 0, 0, torch.where(by_minus_one, -quotient, quotient))


def _floordiv(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, 0, torch.div(a, _nonzero(b), rounding_mode="floor"))


def _shift(shifted: Callable[..., Tensor], low_fill: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def shift(a: Tensor, b: Tensor) -> Tensor:
        bits = a.element_size() * 8
        valid = (b >= 0) & (b < bits)
        return torch.where(valid, shifted(a, b.clamp(0, bits - 1)), low_fill(a))

    return shift


def _int_pow(a: Tensor, b: Tensor) -> Tensor:
    positive = torch.pow(a, b.clamp(min=0))
    inverse = torch.where(a == 1, 1, torch.where(a == -1, torch.where(b % 2 == 0, 1, -1), 0))
    return torch.where(b < 0, inverse.to(a.dtype), positive)


def _rand(make: Callable[[list[Tensor]], Tensor]) -> Callable[..., Tensor]:
    return lambda seed, offset, element: make(philox.philox(seed, offset, element))


def _bits(words: list[Tensor]) -> Tensor:
    return words[0] | (words[1] << 32)


def _order_key(x: Tensor) -> Tensor:
    """Returns an integer that orders like the number. NaN is last; -0 and 0 are equal."""
    dtype = torch.int64 if x.dtype is torch.float64 else torch.int32
    bits, largest = (x + 0.0).contiguous().view(dtype), torch.iinfo(dtype).max
    return torch.where(torch.isnan(x), largest, torch.where(bits < 0, bits ^ largest, bits))


def _where(condition: Tensor, then: Tensor, otherwise: Tensor) -> Tensor:
    return torch.where(condition.bool(), then, otherwise)


SPECIAL: dict[str, Callable[..., Tensor]] = {
    "div": torch.true_divide,
    "truncdiv": _integer_aware(lambda a, b: torch.div(a, b, rounding_mode="trunc"), _truncdiv),
    "floordiv": _integer_aware(lambda a, b: torch.div(a, b, rounding_mode="floor"), _floordiv),
    "fmod": _integer_aware(torch.fmod, lambda a, b: torch.where(b == 0, 0, torch.fmod(a, _nonzero(b)))),
    "remainder": _integer_aware(torch.remainder, lambda a, b: torch.where(b == 0, 0, torch.remainder(a, _nonzero(b)))),
    "pow": _integer_aware(torch.pow, _int_pow),
    "fma": lambda a, b, c: torch.addcmul(c, a, b),
    "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu,
    "gelu_erf": torch.nn.functional.gelu,
    "gelu_erf_slope": lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x),
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "softplus": lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),
    "erfinv": torch.special.erfinv,
    "trigamma": lambda x: torch.polygamma(1, x),
    "zeta": torch.special.zeta,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
    "k0": torch.special.modified_bessel_k0,
    "k0e": torch.special.scaled_modified_bessel_k0,
    "k1": torch.special.modified_bessel_k1,
    "k1e": torch.special.scaled_modified_bessel_k1,
    "bessel_j0": torch.special.bessel_j0,
    "bessel_j1": torch.special.bessel_j1,
    "bessel_y0": torch.special.bessel_y0,
    "bessel_y1": torch.special.bessel_y1,
    "spherical_bessel_j0": torch.special.spherical_bessel_j0,
    "airy_ai": torch.special.airy_ai,
    "erfcx": torch.special.erfcx,
    "log_ndtr": torch.special.log_ndtr,
    "ndtri": torch.special.ndtri,
    "chebyshev_t": torch.special.chebyshev_polynomial_t,
    "chebyshev_u": torch.special.chebyshev_polynomial_u,
    "chebyshev_v": torch.special.chebyshev_polynomial_v,
    "chebyshev_w": torch.special.chebyshev_polynomial_w,
    "hermite_h": torch.special.hermite_polynomial_h,
    "hermite_he": torch.special.hermite_polynomial_he,
    "laguerre": torch.special.laguerre_polynomial_l,
    "legendre": torch.special.legendre_polynomial_p,
    "frexp_mantissa": lambda x: torch.frexp(x)[0],
    "frexp_exponent": lambda x: torch.frexp(x)[1].to(x.dtype),
    "ldexp": lambda x, e: torch.ldexp(x, e.clamp(-5000, 5000).to(torch.int32)),
    "order_key": lambda x: _order_key(x),
    "shift_left": _shift(torch.bitwise_left_shift, torch.zeros_like),
    "shift_right": _shift(torch.bitwise_right_shift, lambda a: torch.where(a < 0, -1, 0).to(a.dtype)),
    "where": _where,
    "philox_uniform": _rand(philox.uniform_of),
    "philox_lane": lambda seed, offset, index: philox.lane_of(philox.philox(seed, offset, index // 4), index % 4),
    "philox_normal": _rand(philox.normal_of),
    "philox_bits": _rand(_bits),
}


RULES: dict[str, str] = {row[0]: row[2] for row in ir.ops()}


def operation(name: str) -> Callable[..., Tensor]:
    """Returns the function of a row of ops.def, on tensors of its compute type. If the row has the name of a torch
    function, it is that function.
    """
    found = SPECIAL.get(name) or getattr(torch, name, None)
    if found is None:
        raise NotImplementedError(f"ops.def has {name!r}, the interpreter does not")
    result: Callable[..., Tensor] = found
    return result


def converted_operands(rule: str, values: Sequence[Tensor]) -> list[Tensor]:
    """Returns the operands, converted to the type in which the row's rule computes."""
    if rule in ("second", "index"):
        rest = values[1:]
        dtype = _promoted(rest)
        return [values[0].bool(), *(v.to(dtype) for v in rest)]
    if rule == "logical":
        return [v.bool() for v in values]
    if rule in ("f32_of_i64", "i64"):
        return [v.to(torch.int64) for v in values]
    dtype = _promoted(values)
    if rule in ("floating", "test") and not dtype.is_floating_point:
        dtype = torch.float32
    if dtype is torch.bool and rule != "bits":
        dtype = torch.int32
    return [v.to(dtype) for v in values]


def _promoted(values: Sequence[Tensor]) -> torch.dtype:
    dtype = values[0].dtype
    for v in values[1:]:
        dtype = torch.promote_types(dtype, v.dtype)
    return dtype
