# torch_ocl_compile/lowering/complex_numbers/complex_term.py: scalar formulas of complex numbers, written with Python operators.
"""A `Z` is a pair of terms. Its functions give what PyTorch gives on the CPU, which for infinities, NaN and signed zeros is mostly
what C's <complex.h> prescribes. A function that would overflow, or lose digits, between its argument and its result is
scaled, or written in another form there."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.term import Term


class Z:
    """The complex number re + i im."""

    __slots__ = ("im", "re")

    def __init__(self, re: Term, im: Term) -> None:
        self.re, self.im = re, im

    def __add__(self, other: Z) -> Z:
        return Z(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Z) -> Z:
        return Z(self.re - other.re, self.im - other.im)

    def __neg__(self) -> Z:
        return Z(-self.re, -self.im)

    def __mul__(self, other: Z) -> Z:
        return Z(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Z) -> Z:
        """Divides by Smith's algorithm, which scales by the larger part of the divisor, so that its square cannot overflow."""
        a, b, c, d = self.re, self.im, other.re, other.im
        wide = t.abs_(c) >= t.abs_(d)
        larger, smaller = t.where(wide, c, d), t.where(wide, d, c)
        is_zero = larger.eq(0.0)
        ratio = t.where(is_zero, 0.0, smaller / larger)
        scale = 1.0 / t.where(is_zero, t.abs_(c), larger + smaller * ratio)
        along, across = t.where(wide, a, b), t.where(wide, b, a)
        turned = across - along * ratio
        return Z((along + across * ratio) * scale, t.where(wide, turned, -turned) * scale)

    def conj(self) -> Z:
        return Z(self.re, -self.im)

    def times(self, x: Term | float) -> Z:
        """Multiplies both parts with a real number."""
        return Z(self.re * x, self.im * x)

    def eq(self, other: Z) -> Term:
        return self.re.eq(other.re) & self.im.eq(other.im)

    def literal(self, x: complex) -> Z:
        """Returns a number as a constant beside this one."""
        nest, dtype = self.re.nest, self.re.dtype
        return Z(nest.constant(x.real, dtype), nest.constant(x.imag, dtype))


def where(condition: Term, then: Z, otherwise: Z) -> Z:
    return Z(t.where(condition, then.re, otherwise.re), t.where(condition, then.im, otherwise.im))


def times_i(z: Z) -> Z:
    return Z(-z.im, z.re)


def over_i(z: Z) -> Z:
    return Z(z.im, -z.re)


def abs_(z: Z) -> Term:
    return t.call("hypot", z.re, z.im)


def angle(z: Z) -> Term:
    return t.call("atan2", z.im, z.re)


def polar(r: Term, angle: Term) -> Z:
    return Z(r * t.call("cos", angle), r * t.call("sin", angle))


def sgn(z: Z) -> Z:
    size = abs_(z)
    unit = Z(z.re / size, z.im / size)
    return where(size.eq(0.0), z.literal(0), unit)


def is_inf(x: Term) -> Term:
    return t.call("isinf", x)


def is_nan(x: Term) -> Term:
    return t.call("isnan", x)


def is_infinite(z: Z) -> Term:
    return is_inf(z.re) | is_inf(z.im)


def exp(z: Z) -> Z:
    """e^x may overflow where e^x cos(y) does not; e^(x/2) does not overflow there."""
    half = t.exp(z.re * 0.5)
    large = z.re > _large(z.re)
    size, more = t.where(large, half, t.exp(z.re)), t.where(large, half, 1.0)
    cos, sin = t.call("cos", z.im), t.call("sin", z.im)
    # e^-inf is 0 in any direction, and e^inf is infinite.
    lost = is_inf(z.re) & is_nan(cos)
    vanishes = lost & (z.re < 0.0)
    re = t.where(lost, t.where(vanishes, 0.0, math.inf), size * cos * more)
    return Z(re, t.where(vanishes, 0.0, t.where(z.im.eq(0.0), z.im, size * sin * more)))


def _large(x: Term) -> float:
    """Returns an exponent from which on e^x may overflow."""
    return 700.0 if x.dtype == ir.DType.kF64 else 87.0


def log_abs(z: Z) -> Term:
    """Returns log |z|. Near |z| = 1 it is computed from |z|^2 - 1, elsewhere from the larger part."""
    x, y = t.abs_(z.re), t.abs_(z.im)
    large, small = t.call("fmax", x, y), t.call("fmin", x, y)
    ratio = t.where(large.eq(0.0) | is_inf(large), 0.0, small / large)
    far = t.log(large) + t.log1p(ratio * ratio) * 0.5
    near = t.log1p(t.call("fma", small, small, (large - 1.0) * (large + 1.0))) * 0.5
    result = t.where((large > 0.5) & (large < 2.0), near, far)
    return t.where((is_nan(x) | is_nan(y)) & ~is_inf(large), x + y, result)


def log(z: Z) -> Z:
    return Z(log_abs(z), angle(z))


def logaddexp(a: Z, b: Z) -> Z:
    """log(e^a + e^b), from the larger exponent and the ratio of the two exponentials."""
    wide = a.re >= b.re
    large, small = where(wide, a, b), where(wide, b, a)
    made = large + log1p(exp(small - large))
    equal = is_inf(a.re) & a.re.eq(b.re)  # inf - inf is NaN.
    return where(equal & (a.re < 0.0), large, where(equal, log(exp(a) + exp(b)), made))


def log1p(z: Z) -> Z:
    """log(1 + z). Where |1 + z| is near 1, its logarithm is computed from |1 + z|^2 - 1 = x (2 + x) + y^2."""
    one = Z(z.re + 1.0, z.im)
    x, y = z.re, z.im
    is_zero = x.eq(0.0) & y.eq(0.0)
    near = t.log1p(t.call("fma", y, y, x * (x + 2.0))) * 0.5
    is_near = (t.abs_(x) < 0.5) & (t.abs_(y) < 0.5)
    return Z(t.where(is_zero, x, t.where(is_near, near, log_abs(one))), angle(one))


def expm1(z: Z) -> Z:
    """e^x cos(y) - 1 = (e^x - 1) cos(y) - 2 sin(y/2)^2."""
    sine = t.call("sin", z.im * 0.5)
    re = t.expm1(z.re) * t.call("cos", z.im) - sine * sine * 2.0
    whole = exp(z)
    return Z(t.where(z.re > _large(z.re), whole.re, re), whole.im)


def sqrt(z: Z) -> Z:
    """With r = sqrt((|x| + |z|) / 2), the parts are r and |y| / 2r. Very large and very small numbers are scaled by powers of 4."""
    x, y = t.abs_(z.re), t.abs_(z.im)
    size = t.call("fmax", x, y)
    huge, tiny = (1e300, 1e-280) if x.dtype == ir.DType.kF64 else (1e37, 1e-30)
    scale = t.where(size > huge, 2.0**-4, t.where(size < tiny, 2.0**40, 1.0))
    back = t.where(size > huge, 2.0**2, t.where(size < tiny, 2.0**-20, 1.0))
    x, y = x * scale, y * scale
    root = t.sqrt((x + t.call("hypot", x, y)) * 0.5)
    other = t.where(root.eq(0.0), root, y / (root * 2.0))
    root, other = root * back, other * back
    right = z.re >= 0.0
    re, im = t.where(right, root, other), t.where(right, other, root)
    # sqrt(-inf + i y) = 0 + i inf, sqrt(inf + i y) = inf + 0i for finite y, and sqrt(x + i inf) = inf + i inf for any x.
    finite = is_inf(z.re) & ~is_inf(z.im)
    zero_or_nan = t.where(is_nan(z.im), z.im, 0.0)
    re = t.where(finite, t.where(right, t.abs_(z.re), zero_or_nan), re)
    im = t.where(finite, t.where(right, zero_or_nan, t.abs_(z.re)), im)
    re = t.where(is_inf(z.im), t.abs_(z.im), t.where(is_nan(z.re), z.re, re))
    im = t.where(is_inf(z.im), t.abs_(z.im), t.where(is_nan(z.re), z.re, im))
    return Z(re, t.call("copysign", im, z.im))


def _halves_of_exp(x: Term) -> tuple[Term, Term, Term]:
    """Returns sinh(x) = s f and cosh(x) = c f as (s, c, f). s w f with |w| <= 1 overflows only if the product is too large."""
    large = t.abs_(x) > _large(x)
    half = t.exp(t.abs_(x) * 0.5)
    sinh = t.where(large, t.call("copysign", half * 0.5, x), t.call("sinh", x))
    cosh = t.where(large, half * 0.5, t.call("cosh", x))
    return sinh, cosh, t.where(large, half, 1.0)


def sinh(z: Z) -> Z:
    """sinh(x) cos(y) + i cosh(x) sin(y)."""
    s, c, more = _halves_of_exp(z.re)
    re, im = s * t.call("cos", z.im) * more, c * t.call("sin", z.im) * more
    # 0 cos(inf) = 0, and inf cos(inf) = inf, each with the sign of x; inf sin(0) = 0.
    re = t.where(is_nan(re) & (z.re.eq(0.0) | is_inf(z.re)), z.re, re)
    return Z(re, t.where(z.im.eq(0.0), z.im, im))


def cosh(z: Z) -> Z:
    """cosh(x) cos(y) + i sinh(x) sin(y)."""
    s, c, more = _halves_of_exp(z.re)
    re, im = c * t.call("cos", z.im) * more, s * t.call("sin", z.im) * more
    re = t.where(is_nan(re) & is_inf(z.re), math.inf, re)
    on_axis = is_nan(im) & (z.re.eq(0.0) | z.im.eq(0.0))
    return Z(re, t.where(on_axis, t.call("copysign", 1.0, z.im) * t.call("copysign", 0.0, z.re), im))


def sin(z: Z) -> Z:
    return over_i(sinh(times_i(z)))


def cos(z: Z) -> Z:
    return cosh(times_i(z))


def tanh(z: Z) -> Z:
    """With t = tan(y), b = 1 + t^2 and s = sinh(x) (Kahan): (b sqrt(1 + s^2) s + i t) / (1 + b s^2)."""
    x, y = z.re, z.im
    limit = 175.0 if x.dtype == ir.DType.kF64 else 11.0
    large = t.abs_(x) > limit
    tangent, s = t.call("tan", y), t.call("sinh", t.where(large, 0.0, x))
    b = tangent * tangent + 1.0
    size = b * s * s + 1.0
    re, im = b * t.sqrt(s * s + 1.0) * s / size, tangent / size
    # tanh(x) = 1 to all digits; the rest is 4 sin(y) cos(y) e^(-2 |x|).
    decay = t.exp(t.abs_(x) * -2.0)
    wave = t.call("sin", y) * t.call("cos", y) * 4.0
    wave = t.where(is_inf(x) & is_nan(wave), t.call("copysign", 0.0, y), wave)
    re = t.where(large, t.call("copysign", 1.0, x) + wave * 0.0, re)
    im = t.where(large, wave * decay, im)
    return Z(t.where(x.eq(0.0), x, re), t.where(y.eq(0.0), y, im))


def tan(z: Z) -> Z:
    return over_i(tanh(times_i(z)))


def asin(z: Z) -> Z:
    """Kahan's formulas, with square roots instead of logarithms, so that no digits are lost near the branch points."""
    below, above = sqrt(Z(1.0 - z.re, -z.im)), sqrt(Z(1.0 + z.re, z.im))
    finite = Z(t.call("atan2", z.re, (below * above).re), t.call("asinh", (below.conj() * above).im))
    infinite = Z(t.call("atan2", z.re, t.abs_(z.im)), t.call("copysign", math.inf, z.im))
    made = where(is_infinite(z), infinite, finite)
    return Z(t.where(z.re.eq(0.0), z.re, made.re), made.im)


def acos(z: Z) -> Z:
    below, above = sqrt(Z(1.0 - z.re, -z.im)), sqrt(Z(1.0 + z.re, z.im))
    finite = Z(t.call("atan2", below.re, above.re) * 2.0, t.call("asinh", (above.conj() * below).im))
    infinite = Z(t.call("atan2", t.abs_(z.im), z.re), -t.call("copysign", math.inf, z.im))
    made = where(is_infinite(z), infinite, finite)
    return Z(t.where(z.re.eq(0.0) & is_nan(z.im), math.pi / 2, made.re), made.im)


def acosh(z: Z) -> Z:
    below, above = sqrt(Z(z.re - 1.0, z.im)), sqrt(Z(z.re + 1.0, z.im))
    finite = Z(t.call("asinh", (below.conj() * above).re), t.call("atan2", below.im, above.re) * 2.0)
    infinite = is_infinite(z)
    im = t.where(infinite, angle(z), t.where(z.re.eq(0.0) & is_nan(z.im), math.pi / 2, finite.im))
    return Z(t.where(infinite, math.inf, finite.re), im)


def asinh(z: Z) -> Z:
    return over_i(asin(times_i(z)))


def atanh(z: Z) -> Z:
    """(log1p(4x / ((1 - x)^2 + y^2)) / 4, atan2(2y, (1 - x)(1 + x) - y^2) / 2)."""
    x, y = t.abs_(z.re), z.im
    far = t.call("fmax", x, t.abs_(y)) > (1e150 if x.dtype == ir.DType.kF64 else 1e18)
    x, y = t.where(far, 0.0, x), t.where(far, 0.0, y)
    gap = 1.0 - x
    re = t.log1p(x * 4.0 / (gap * gap + y * y)) * 0.25
    re = t.where(gap.eq(0.0) & (t.abs_(y) < 1e-6), t.log(2.0 / t.abs_(y)) * 0.5, re)  # y^2 may be too small.
    im = t.call("atan2", y * 2.0, gap * (1.0 + x) - y * y) * 0.5
    # Far away, atanh(z) is nearly 1/z + i pi/2 with the sign of y.
    inverse = reciprocal(z)
    re = t.where(far, t.where(is_infinite(z), 0.0, t.abs_(inverse.re)), re)
    im = t.where(far, t.call("copysign", math.pi / 2, z.im), im)
    unknown = is_nan(z.re) | is_nan(z.im)
    re = t.where(z.re.eq(0.0), 0.0, t.where(unknown & ~is_infinite(z), math.nan, re))
    im = t.where(unknown & ~is_inf(z.im), math.nan, im)
    return Z(t.call("copysign", re, z.re), im)


def atan(z: Z) -> Z:
    return over_i(atanh(times_i(z)))


def power(z: Z, exponent: Z) -> Z:
    """e^(exponent log z); z^0 = 1, and 0 to a power with a positive real part is 0."""
    general = exp(exponent * log(z))
    at_zero = z.re.eq(0.0) & z.im.eq(0.0) & (exponent.re > 0.0) & exponent.im.eq(0.0)
    result = where(at_zero, z.literal(0), general)
    return where(exponent.re.eq(0.0) & exponent.im.eq(0.0), z.literal(1), result)


def reciprocal(z: Z) -> Z:
    return z.literal(1) / z


def sigmoid(z: Z) -> Z:
    return reciprocal(exp(-z) + z.literal(1))


def scaled_log(base: float) -> Callable[[Z], Z]:
    return lambda z: log(z).times(1 / math.log(base))
