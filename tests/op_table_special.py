# tests/op_table_special.py: rows of the op table for torch.special.
"""Tolerances are large because PyTorch computes some of these functions in fp32 with an error of several units in the
last place."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.op_row import Op, Sample, make

S = torch.special
FUNCTIONS = "i0 i0e i1 i1e modified_bessel_i0 modified_bessel_i1 spherical_bessel_j0 erfcx log_ndtr"
POSITIVE = "modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1"
# PyTorch's own results for these functions have errors of up to 9e-7 even in fp64, the largest for arguments between 4
# and 9. Ours agree with mpmath to 1e-15. So random programs, which compare with PyTorch, do not use these functions.
INEXACT = {"bessel_j0": (-12, 12), "bessel_j1": (-12, 12), "bessel_y0": (0.05, 15), "bessel_y1": (0.05, 15)}
POLYNOMIALS = [
    *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
]
DIFFERENTIABLE = {"i0", "i0e", "i1", "i1e", "erfcx", "log_ndtr"}


def spread(low: float, high: float) -> Callable[[torch.dtype], list[Sample]]:
    """Returns random samples in [low, high), a range in which every series of the function is used."""
    return lambda dtype: [(make(9, 7, dtype=dtype, low=low, high=high),), (make(dtype=dtype, low=low, high=high),)]


def degrees(_: torch.dtype) -> list[Sample]:
    n = torch.arange(-1, 9, dtype=torch.float32)
    return [(make(6, 1, low=-1.5, high=1.5), n), (torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([4.0, 5.0, 2.7]))]


def pairs(_: torch.dtype) -> list[Sample]:
    return [
        (make(7, 5, low=0.1, high=20), make(5, low=0.1, high=20)),
        (make(4, low=1.5, high=9), make(4, low=0.5, high=30)),
    ]


def ldexp_types(x, exponent):
    """Calls ldexp for numbers of three dtypes and exponents of two dtypes, one of them also 0-dimensional."""
    exponents = (exponent.int(), exponent.half(), exponent.half()[0])
    return tuple(torch.ldexp(a, e) for a in (x, x.half(), x.int()) for e in exponents)


TOLERANCES = {"rtol": 1e-4, "atol": 1e-5}
OPS: list[Op] = [
    *(Op(n, getattr(S, n), spread(-12, 12), gradient=n in DIFFERENTIABLE, **TOLERANCES) for n in FUNCTIONS.split()),
    # Below -2.09 PyTorch's result has an error of about 1e-6 even in fp64: its code lacks the leading coefficient of
    # two polynomials. So random programs do not use airy_ai.
    Op("airy_ai", S.airy_ai, spread(-12, 12), gradient=False, programs="none", **TOLERANCES),
    *(Op(n, getattr(S, n), spread(0.05, 15), gradient=False, **TOLERANCES) for n in POSITIVE.split()),
    *(Op(n, getattr(S, n), spread(*r), gradient=False, programs="none", **TOLERANCES) for n, r in INEXACT.items()),
    *(Op(n, getattr(S, n), degrees, gradient=False, **TOLERANCES) for n in POLYNOMIALS),
    Op("ndtri", S.ndtri, spread(0.001, 0.999), **TOLERANCES),
    Op("zeta", S.zeta, lambda d: [(make(6, 1, low=1.1, high=9), make(5, low=0.2, high=20))], gradient=False),
    Op("igamma", torch.igamma, pairs, gradient=False, **TOLERANCES),
    Op("igammac", torch.igammac, pairs, gradient=False, **TOLERANCES),
    *(Op(f"polygamma_{n}", lambda x, n=n: torch.polygamma(n, x), spread(0.1, 9), **TOLERANCES) for n in (1, 2, 3)),
    Op("frexp", lambda x: torch.frexp(x)[:2], spread(-9, 9), gradient=False),
    Op("ldexp", torch.ldexp, lambda d: [(make(5, 4), make(4, dtype=torch.int64))]),
    Op("ldexp_types", ldexp_types, lambda d: [(make(5, 4), make(4))], gradient=False),
]
