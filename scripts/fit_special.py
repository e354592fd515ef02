# scripts/fit_special.py: computes the Chebyshev series of kernels/base/special_series.def and writes that file.
"""python scripts/fit_special.py      (needs mpmath, which torch depends on)

Each row of SERIES is a smooth function of t in [-1, 1]. It is a special function on some range of x, divided by its
singular factors, with x mapped to t. Coefficients are computed with 40 digits. Those below 2^-56 of the largest one are
dropped, because they do not change a result in double. Docstrings give the function and the map."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp

FILE = Path(__file__).resolve().parents[1] / "kernels" / "base/special_series.def"
HEAD = """\
// kernels/base/special_series.def: Chebyshev series on [-1, 1] of the functions in kernels/base/special.cl, from the highest
// term down. Written by scripts/fit_special.py; csrc/codegen/op_library.cpp makes op_series_NAME(t) of each row.

"""

mp.mp.dps = 40
J0_ZEROS, J1_ZEROS = ([mp.besseljzero(order, k) for k in (1, 2)] for order in (0, 1))


def hankel(order: int, odd: bool) -> Callable[[Any], Any]:
    """P, or x Q if `odd`, of the Bessel function J = sqrt(2 / (pi x)) (P cos w - Q sin w).

    w = x - (order/2 + 1/4) pi; t = 128/x^2 - 1.
    """

    def f(t: Any) -> Any:
        if t == -1:  # x is infinite
            return (mp.mpf(4 * order * order - 1) / 8) if odd else mp.mpf(1)
        x = mp.sqrt(128 / (t + 1))
        w = x - (mp.mpf(order) / 2 + mp.mpf(1) / 4) * mp.pi
        scale = mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x) * scale, mp.bessely(order, x) * scale
        return x * (y * mp.cos(w) - j * mp.sin(w)) if odd else j * mp.cos(w) + y * mp.sin(w)

    return f


def airy_phase(odd: bool) -> Callable[[Any], Any]:
    """P, or z Q if `odd`, of the Airy function Ai(-x) = (P cos w + Q sin w) / (sqrt(pi) x^(1/4)) for x >= 4.

    z = 2/3 x^(3/2), w = z - pi/4; t = 2 (16/3 / z)^2 - 1.
    """
    least = mp.mpf(2) / 3 * 8

    def f(t: Any) -> Any:
        if t == -1:
            return mp.mpf(5) / 72 if odd else mp.mpf(1)
        z = least / mp.sqrt((t + 1) / 2)
        x = (z * 3 / 2) ** (mp.mpf(2) / 3)
        w, scale = z - mp.pi / 4, mp.sqrt(mp.pi) * mp.root(x, 4)
        a, b = mp.airyai(-x) * scale, mp.airybi(-x) * scale
        return z * (a * mp.sin(w) + b * mp.cos(w)) if odd else a * mp.cos(w) - b * mp.sin(w)

    return f


def airy_decay(t: Any) -> Any:
    """2 sqrt(pi) x^(1/4) exp(z) Ai(x) for x >= 1, with z = 2/3 x^(3/2); t = 2 * (2/3) / z - 1."""
    if t == -1:
        return mp.mpf(1)
    z = mp.mpf(4) / 3 / (t + 1)
    x = (z * 3 / 2) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(z) * mp.airyai(x)


def large(f: Callable[[Any], Any], least: int, at_infinity: Any) -> Callable[[Any], Any]:
    """f(x) for x >= `least`; t = 2 least / x - 1. `at_infinity` is the limit of f."""
    return lambda t: at_infinity if t == -1 else f(2 * least / (t + 1))


def erfcx(t: Any) -> Any:
    """(1 + 2x) exp(x^2) erfc(x); t = (x - 3.75) / (x + 3.75)."""
    if t == 1:
        return 2 / mp.sqrt(mp.pi)
    x = mp.mpf("3.75") * (1 + t) / (1 - t)
    value = mp.exp(x * x) * mp.erfc(x) if x < 50 else sum(
        (-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(12)
    ) / (x * mp.sqrt(mp.pi))  # fmt: skip
    return (1 + 2 * x) * value


def quantile(p: Any) -> Any:
    """The p-quantile of the normal distribution for p < 1/2, by Newton's method on the logarithm of the tail."""
    x = -mp.sqrt(-2 * mp.log(p)) if p < 0.1 else (p - mp.mpf(1) / 2) * mp.sqrt(2 * mp.pi)
    for _ in range(60):
        tail = mp.erfc(-x / mp.sqrt(2)) / 2
        step = (mp.log(tail) - mp.log(p)) * tail / (mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi))
        x -= step
        if abs(step) < mp.mpf(10) ** -35:
            break
    return x


def quantile_tail(low: int, high: int) -> Callable[[Any], Any]:
    """s + quantile(p) with p = exp(-s^2 / 2), for s in [low, high]; 1/s is mapped linearly to t."""

    def f(t: Any) -> Any:
        a, b = mp.mpf(1) / high, mp.mpf(1) / low
        s = 1 / (a + (b - a) * (t + 1) / 2)
        return s + quantile(mp.exp(-s * s / 2))

    return f


def quantile_middle(t: Any) -> Any:
    """quantile(1/2 - y) / -y; y^2 = (t + 1) / 2 * 0.15."""
    y = mp.sqrt((t + 1) / 2 * mp.mpf("0.15"))
    return mp.sqrt(2 * mp.pi) if y == 0 else -quantile(mp.mpf(1) / 2 - y) / y


def besseli_over(order: int, x: Any) -> Any:
    """exp(-x) I0(x), or exp(-x) I1(x) / x; I is the modified Bessel function of this order."""
    if order == 1:
        return mp.mpf(1) / 2 if x == 0 else mp.exp(-x) * mp.besseli(1, x) / x
    return mp.exp(-x) * mp.besseli(0, x)


def besselk_small(order: int, square: Any) -> Any:
    """K0 + log(x/2) I0, or x (K1 - log(x/2) I1), as functions of x^2."""
    if square == 0:
        return -mp.euler if order == 0 else mp.mpf(1)
    x = mp.sqrt(square)
    log = mp.log(x / 2)
    if order == 0:
        return mp.besselk(0, x) + log * mp.besseli(0, x)
    return x * (mp.besselk(1, x) - log * mp.besseli(1, x))


def besselj_small(order: int, square: Any) -> Any:
    """J0(x), or J1(x) / x, divided by x^2 - z^2 for the two smallest zeros z > 0; a function of square = x^2."""
    x = mp.sqrt(square)
    zeros = J0_ZEROS if order == 0 else J1_ZEROS
    rest = (square - zeros[0] ** 2) * (square - zeros[1] ** 2)
    if order == 0:
        return mp.besselj(0, x) / rest
    return (mp.mpf(1) / 2 if x == 0 else mp.besselj(1, x) / x) / rest


def bessely_small(order: int, square: Any) -> Any:
    """Y0 - 2/pi log(x) J0, or (Y1 - 2/pi (log(x) J1 - 1/x)) / x, as functions of square = x^2."""
    x = mp.sqrt(square if square else mp.mpf(10) ** -24)
    factor = 2 / mp.pi
    if order == 0:
        return mp.bessely(0, x) - factor * mp.log(x) * mp.besselj(0, x)
    if square < mp.mpf(10) ** -6:  # The formula below would cancel; this is its limit at 0.
        return factor * ((mp.euler - mp.log(2)) / 2 - mp.mpf(1) / 4)
    return (mp.bessely(1, x) - factor * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


SERIES: dict[str, Callable[[Any], Any]] = {
    "i0e_small": lambda t: besseli_over(0, 4 * (t + 1)),
    "i0e_large": large(lambda x: mp.sqrt(x) * besseli_over(0, x), 8, 1 / mp.sqrt(2 * mp.pi)),
    "i1e_small": lambda t: besseli_over(1, 4 * (t + 1)),
    "i1e_large": large(lambda x: x * mp.sqrt(x) * besseli_over(1, x), 8, 1 / mp.sqrt(2 * mp.pi)),
    "k0_small": lambda t: besselk_small(0, 2 * (t + 1)),
    "k0_large": large(lambda x: mp.exp(x) * mp.sqrt(x) * mp.besselk(0, x), 2, mp.sqrt(mp.pi / 2)),
    "k1_small": lambda t: besselk_small(1, 2 * (t + 1)),
    "k1_large": large(lambda x: mp.exp(x) * mp.sqrt(x) * mp.besselk(1, x), 2, mp.sqrt(mp.pi / 2)),
    "j0_small": lambda t: besselj_small(0, 32 * (t + 1)),
    "j1_small": lambda t: besselj_small(1, 32 * (t + 1)),
    "y0_small": lambda t: bessely_small(0, 32 * (t + 1)),
    "y1_small": lambda t: bessely_small(1, 32 * (t + 1)),
    "p0": hankel(0, False),
    "q0": hankel(0, True),
    "p1": hankel(1, False),
    "q1": hankel(1, True),
    "airy_middle": lambda t: mp.airyai((5 * t - 3) / 2),  # x from -4 to 1
    "airy_decay": airy_decay,
    "airy_p": airy_phase(False),
    "airy_q": airy_phase(True),
    "erfcx": erfcx,
    "ndtri_middle": quantile_middle,
    "ndtri_tail": quantile_tail(2, 8),
    "ndtri_far_tail": quantile_tail(8, 40),
}


def coefficients(f: Callable[[Any], Any], nodes: int = 56) -> list[Any]:
    """Returns c_k of f = sum c_k T_k, from the values of f at Chebyshev's nodes, without coefficients below 2^-56."""
    angles = [mp.pi * (mp.mpf(k) + mp.mpf(1) / 2) / nodes for k in range(nodes)]
    values = [f(mp.cos(a)) for a in angles]
    found = [2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) / nodes for j in range(nodes)]
    found[0] /= 2
    least = max(map(abs, found)) * mp.mpf(2) ** -56
    count = max(k + 1 for k, c in enumerate(found) if abs(c) > least)
    print(f"{count} terms, next {mp.nstr(found[min(count, nodes - 1)], 3)}")
    return found[:count]


def row(name: str, terms: list[Any]) -> str:
    """Returns the row of a series."""
    numbers = ", ".join(mp.nstr(c, 17, min_fixed=0, max_fixed=0) for c in reversed(terms))
    return textwrap.fill(f"OCL_SERIES({name}, {numbers})", 130, subsequent_indent=" " * 11, break_on_hyphens=False)


def main() -> None:
    rows = []
    for name, f in SERIES.items():
        print(name, end=": ")
        rows.append(row(name, coefficients(f)))
    FILE.write_text(HEAD + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
