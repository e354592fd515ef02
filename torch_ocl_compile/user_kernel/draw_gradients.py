# torch_ocl_compile/user_kernel/draw_gradients.py: the ops ocl.gamma_grad and ocl.dirichlet_grad, derivatives of drawn numbers.
"""A number x drawn with the density p and the cumulative distribution F depends on its parameter a by dx / da = -(dF / da) / p(x)
(Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients", 2018).

dF / da is an integral of p(t) (log t - mean of log t) over t < x, and minus that over t > x. The side is taken on which the second factor
has one sign. After t = x e^y (for Dirichlet's numbers: t / (1 - t) = x / (1 - x) e^y) the integrand is smooth and falls exponentially
or faster, and the trapezoidal rule in u, with |y| = length * exp(u - exp(-u)), has an error that falls exponentially with the number of
points. A small a makes the lower side long: there, the power series of F has terms of one sign."""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_ocl_compile.user_kernel.draws import by_element

COMMON = """
#define SERIES_BELOW 20   // The series takes about 6 sqrt(a) terms.
#define MOST_TERMS 1000
// A power of e that no longer counts. Powers are concave in y and begin at 0, so those after it are smaller.
#define LEAST_POWER (sizeof(T) == 4 ? -30 : -60)

__constant T places[POINTS] = {PLACES}, weights[POINTS] = {WEIGHTS};

// Returns log x - digamma(x).
inline T log_less_digamma(T x) {
  T sum = 0, y = x;
  for (; y < 10; y += 1) sum += 1 / y;
  const T r = 1 / (y * y);
  const T tail = (T)0.5 / y + r * ((T)(1.0 / 12) - r * ((T)(1.0 / 120) - r * ((T)(1.0 / 252) - r * ((T)(1.0 / 240) - r / 132))));
  return sum + tail + (y == x ? 0 : log(x / y));
}

// Returns e^y - 1 - y.
inline T8 beyond_line(T8 y) {
  const T8 small = y * y * (SERIES), limit = (T)0.5;
  return any(fabs(y) > limit) ? fabs(y) > limit ? exp(y) - 1 - y : small : small;
}

inline T total_of(T8 v) {
  const T4 four = v.lo + v.hi;
  return four.s0 + four.s1 + four.s2 + four.s3;
}
"""

GAMMA = """
__kernel void gamma_grad(__global const T* alphas, __global const T* drawn, __global T* made, const long count) {
  const long i = get_global_id(0);
  if (i >= count) return;
  const T a = alphas[i], x = drawn[i], above = log(x / a) + log_less_digamma(a);   // log x - digamma(a)
  T sum = 0;
  if (x > 0 && a < SERIES_BELOW && above < 1 / a) {
    T ratio = x / a, factor = 1 / a - above;
    for (int n = 1; n < MOST_TERMS; ++n) {
      sum += ratio * factor;
      if (ratio * (factor + 1) < EPSILON * sum) break;
      ratio *= x / (a + n), factor += 1 / (a + n);
    }
  } else if (x > 0) {
    const T side = above > 0 ? 1 : -1, length = 1 / (fabs(x - a) + sqrt(x));
    T8 sums = 0;
    for (int k = 0; k < POINTS / 8; ++k) {
      const T8 y = length * vload8(k, places), power = side * y * (a - x) - x * beyond_line(side * y);
      if (all(power < LEAST_POWER)) break;
      sums += fmax(exp(power) * (fabs(above) + y), (T8)(0)) * vload8(k, weights);
    }
    sum = total_of(sums) * x * length;
  }
  made[i] = isnan(x) || isnan(a) ? NAN : sum;
}
"""

# The derivative divided by 1 - x, as PyTorch defines it; beta = total - alpha.
DIRICHLET = """
__kernel void dirichlet_grad(__global const T* drawn, __global const T* alphas, __global const T* totals, __global T* made,
                             const long count) {
  const long i = get_global_id(0);
  if (i >= count) return;
  const T x = drawn[i], a = alphas[i], total = totals[i], b = total - a;
  const T above = log(x / a * total) + log_less_digamma(a) - log_less_digamma(total);   // log x minus the mean of log t
  T sum = 0;
  if (x > 0 && x < (T)0.5 && a < SERIES_BELOW && above < 1 / a) {
    T ratio = x / a, factor = 1 / a - above;
    for (int n = 0; n < MOST_TERMS; ++n) {
      sum += ratio * factor;
      if (n > total * x && ratio * (fabs(factor) + 1) < EPSILON * sum) break;
      ratio *= x * (total + n) / (a + n + 1), factor += 1 / (a + n + 1) - 1 / (total + n);
    }
  } else if (x > 0) {
    const bool is_upper = above > 0;
    const T rest = is_upper ? 1 - x : x, power = is_upper ? b : a;
    const T length = 1 / (fabs(a - total * x) + fmin(power, sqrt(total * x * (1 - x))));
    T8 sums = 0;
    for (int k = 0; k < POINTS / 8; ++k) {
      const T8 y = length * vload8(k, places), more = log1p(rest * expm1(-y));
      const T8 exponent = -power * y - total * more;
      if (all(exponent < LEAST_POWER)) break;
      sums += fmax(exp(exponent) * (fabs(above) + (is_upper ? -more : y + more)), (T8)(0)) * vload8(k, weights);
    }
    sum = total_of(sums) * x * length;
  }
  made[i] = isnan(x) || isnan(a) || isnan(total) ? NAN : sum;
}
"""


def _macros(x: torch.Tensor, *_: Any) -> dict[str, Any]:
    is_double = x.dtype == torch.float64
    first, step, count, terms = (-4.0, 0.0625, 136, 14) if is_double else (-2.75, 0.25, 32, 8)
    points = [first + step * k for k in range(count)]
    places = [math.exp(u - math.exp(-u)) for u in points]
    series = "0"
    for k in range(terms, 1, -1):
        series = f"(T){1 / math.factorial(k)!r} + y * ({series})"
    weights = [step * y * (1 + math.exp(-u)) for u, y in zip(points, places, strict=True)]
    return {
        "T": x.dtype,
        **{f"T{width}": f"{'double' if is_double else 'float'}{width}" for width in (4, 8)},
        "POINTS": count,
        "SERIES": series,
        "PLACES": ", ".join(map(repr, places)),
        "WEIGHTS": ", ".join(map(repr, weights)),
        "EPSILON": torch.finfo(x.dtype).eps / 8,
    }


GRADIENTS = [
    by_element("gamma_grad", COMMON + GAMMA, _macros),
    by_element("dirichlet_grad", COMMON + DIRICHLET, _macros),
]
