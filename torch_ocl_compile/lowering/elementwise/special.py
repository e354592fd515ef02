# torch_ocl_compile/lowering/elementwise/special.py: torch.special: Bessel, gamma and zeta functions, orthogonal polynomials.
"""The functions are defined in kernels/base/special.cl. Integers and bool are computed in float32, to which PyTorch
promotes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import add_row, lower
from torch_ocl_compile.lowering.elementwise.pointwise import apply

aten = torch.ops.aten

_SAME = "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 erfcx i0e i1 i1e log_ndtr ndtri spherical_bessel_j0"
UNARY: dict[str, str] = {
    "aten.i0.default": "i0",
    "aten.special_modified_bessel_i0.default": "i0",
    "aten.special_modified_bessel_i1.default": "i1",
    "aten.special_modified_bessel_k0.default": "k0",
    "aten.special_modified_bessel_k1.default": "k1",
    "aten.special_scaled_modified_bessel_k0.default": "k0e",
    "aten.special_scaled_modified_bessel_k1.default": "k1e",
    "aten.igamma.default": "igamma",
    "aten.igammac.default": "igammac",
}
UNARY |= {f"aten.special_{name}.default": name for name in _SAME.split()}

# Each op below has these overloads: two tensors, or a number for either operand.
OVERLOADS = ("default", "x_scalar", "n_scalar", "other_scalar", "self_scalar")
BINARY: dict[str, str] = {
    "aten.special_chebyshev_polynomial_t": "chebyshev_t",
    "aten.special_chebyshev_polynomial_u": "chebyshev_u",
    "aten.special_chebyshev_polynomial_v": "chebyshev_v",
    "aten.special_chebyshev_polynomial_w": "chebyshev_w",
    "aten.special_hermite_polynomial_h": "hermite_h",
    "aten.special_hermite_polynomial_he": "hermite_he",
    "aten.special_laguerre_polynomial_l": "laguerre",
    "aten.special_legendre_polynomial_p": "legendre",
    "aten.special_zeta": "zeta",
}
# Polynomials on [0, 1] instead of [-1, 1].
SHIFTED: dict[str, str] = {f"aten.special_shifted_chebyshev_polynomial_{k}": f"chebyshev_{k}" for k in "tuvw"}


def _row(name: str) -> Callable[..., ir.Value]:
    return lambda c, *args: apply(c, name, *args)


def _shifted_row(name: str) -> Callable[..., ir.Value]:
    def run(c: Context, x: Any, n: Any) -> ir.Value:
        if not isinstance(x, ir.Value):
            return apply(c, name, 2.0 * x - 1.0, n)
        moved = c.pointwise(lambda v: v + v - 1.0, x)
        return apply(c, name, moved, n)

    return run


def _add_rows() -> None:
    rows = {target: _row(name) for target, name in UNARY.items()}
    for table, make in ((BINARY, _row), (SHIFTED, _shifted_row)):
        rows |= {f"{packet}.{which}": make(name) for packet, name in table.items() for which in OVERLOADS}
    for target, lowering in rows.items():
        found = overload(target)
        if found is not None:
            add_row(found, lowering)


_add_rows()


@lower(aten.polygamma.default)
def polygamma(c: Context, n: int, x: ir.Value) -> ir.Value:
    """Returns (-1)^(n+1) n! zeta(n + 1, x). n = 0 and n = 1 have formulas of their own, as in PyTorch."""
    if n < 2:
        return apply(c, "trigamma" if n else "digamma", x)
    factor = float((-1) ** (n + 1) * math.factorial(n))
    return c.pointwise(lambda v: t.call("zeta", v.nest.constant(n + 1, v.dtype), v) * factor, x)


@lower(aten.ldexp.Tensor)
def ldexp(c: Context, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """Returns x * 2^exponent. If the exponent's dtype is floating, PyTorch computes the power first and rounds it to that
    dtype."""
    compute = ir.compute_type(c.dtype)

    def scaled(a: t.Term, e: t.Term) -> t.Term:
        if not ir.is_floating(exponent.dtype):
            return t.call("ldexp", a, e.cast(compute))
        e = e.cast(ir.compute_type(exponent.dtype))
        return a * t.call("pow", e.nest.constant(2.0, e.dtype), e).cast(exponent.dtype).cast(compute)

    return c.pointwise(scaled, x, exponent, raw=(1,))


@lower(aten.frexp.Tensor)
def frexp(c: Context, x: ir.Value) -> Any:
    """Returns (mantissa, exponent) such that x = mantissa * 2^exponent."""
    dtypes = [ir_dtype(v.dtype) for v in c.val]
    return c.pointwise_tuple(lambda v: (t.call("frexp_mantissa", v), t.call("frexp_exponent", v)), x, dtypes=dtypes)
