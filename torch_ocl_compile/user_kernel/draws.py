# torch_ocl_compile/user_kernel/draws.py: the ops ocl.poisson, ocl.binomial and ocl.standard_gamma, numbers drawn by rejection.
"""Each element has a key of 63 random bits, with which Philox makes as many words as the element happens to need.

Rates from 10 on are drawn by transformed rejection: W. Hörmann, "The transformed rejection method for generating Poisson random
variables" (PTRS) and "The generation of binomial random variates" (BTRS), both 1993. The logarithms of probabilities are those of
C. Loader, "Fast and accurate computation of binomial probabilities", 2000, which lose no digits where numbers are large."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.user_kernel.kernel import kernel

WORDS = (
    _C.exec.kernel_file("base/philox")
    + """
typedef struct {
  uint key[2], counter, words[4];
  int left;
} Source;

inline Source source_of(long key) {
  Source s;
  s.key[0] = (uint)key, s.key[1] = (uint)(key >> 32), s.counter = 0, s.left = 0;
  return s;
}

inline uint word(Source* s) {
  if (s->left == 0) {
    uint w0 = s->counter++, w1 = 0, w2 = 0, w3 = 0, k0 = s->key[0], k1 = s->key[1];
    PHILOX_ROUNDS(uint, w0, w1, w2, w3, k0, k1)
    s->words[0] = w0, s->words[1] = w1, s->words[2] = w2, s->words[3] = w3, s->left = 4;
  }
  return s->words[--s->left];
}

// Returns a number between 0 and 1, but neither of them.
inline T uniform(Source* s) {
#if IS_DOUBLE
  const ulong high = word(s);
  return (T)(((high << 20) | (word(s) >> 12)) + 0.5) * (T)0x1p-52;
#else
  return ((T)(word(s) >> 9) + (T)0.5) * (T)0x1p-23;
#endif
}
"""
)

PROBABILITIES = """
// Returns log(k!) minus Stirling's (k + 1/2) log k - k + log(2 pi) / 2, for k > 0.
inline T stirling_error(T k) {
  if (k < 16) {
    T product = 1;
    for (T i = 2; i <= k; i += 1) product *= i;
    return log(product) - ((k + (T)0.5) * log(k) - k + (T)0.91893853320467274);
  }
  const T r = 1 / (k * k);
  return ((T)(1.0 / 12) - r * ((T)(1.0 / 360) - r * ((T)(1.0 / 1260) - r * (T)(1.0 / 1680)))) / k;
}

// Returns k log(k / mean) + mean - k.
inline T deviance(T k, T mean) {
  const T d = k - mean, v = d / (k + mean);
  if (fabs(v) > (T)0.1) return k * log(k / mean) - d;
  T sum = d * v, term = 2 * k * v;
  for (int j = 3; j < 18; j += 2) term *= v * v, sum += term / j;
  return sum;
}

inline T log_poisson(T k, T rate) {
  if (k == 0) return -rate;
  return -stirling_error(k) - deviance(k, rate) - (T)0.5 * log((T)6.2831853071795865 * k);
}

inline T log_binomial(T k, T n, T p) {
  if (k == 0) return n * log1p(-p);
  if (k == n) return n * log(p);
  const T other = n - k;
  return stirling_error(n) - stirling_error(k) - stirling_error(other) - deviance(k, n * p) - deviance(other, n * (1 - p)) -
         (T)0.5 * log((T)6.2831853071795865 * k * (other / n));
}
"""

POISSON = """
__kernel void poisson(__global const T* rates, __global const long* keys, __global T* made, const long count) {
  const long i = get_global_id(0);
  if (i >= count) return;
  Source source = source_of(keys[i]);
  const T rate = rates[i];
  T k = isnan(rate) ? rate : 0;
  if (rate < 10) {   // Knuth: the waiting times until the next events have the sum 1.
    const T least = exp(-rate);
    for (T product = uniform(&source); product > least; product *= uniform(&source)) k += 1;
  } else if (rate >= 10) {
    const T b = (T)0.931 + (T)2.53 * sqrt(rate), a = (T)-0.059 + (T)0.02483 * b, inverse = (T)1.1239 + (T)1.1328 / (b - (T)3.4);
    const T inside = (T)0.9277 - (T)3.6224 / (b - 2);
    for (bool taken = false; !taken;) {
      const T u = uniform(&source) - (T)0.5, v = uniform(&source), us = (T)0.5 - fabs(u);
      k = floor((2 * a / us + b) * u + rate + (T)0.43);
      taken = us >= (T)0.07 && v <= inside;
      if (taken || k < 0 || (us < (T)0.013 && v > us)) continue;
      taken = log(v * inverse / (a / (us * us) + b)) <= log_poisson(k, rate);
    }
  }
  made[i] = k;
}
"""

BINOMIAL = """
inline T few(Source* source, T n, T p) {   // Failures between successes have a geometric distribution.
  const T scale = log1p(-p);
  T k = 0;
  for (T trials = ceil(log(uniform(source)) / scale); trials <= n; trials += ceil(log(uniform(source)) / scale)) k += 1;
  return k;
}

inline T many(Source* source, T n, T p) {
  const T deviation = sqrt(n * p * (1 - p)), b = (T)1.15 + (T)2.53 * deviation;
  const T a = (T)-0.0873 + (T)0.0248 * b + (T)0.01 * p, alpha = ((T)2.83 + (T)5.1 / b) * deviation;
  const T inside = (T)0.92 - (T)4.2 / b, most = log_binomial(floor((n + 1) * p), n, p);
  for (;;) {
    const T u = uniform(source) - (T)0.5, v = uniform(source), us = (T)0.5 - fabs(u);
    const T k = floor((2 * a / us + b) * u + n * p + (T)0.5);
    if (us >= (T)0.07 && v <= inside) return k;
    if (k < 0 || k > n) continue;
    if (log(v * alpha / (a / (us * us) + b)) <= log_binomial(k, n, p) - most) return k;
  }
}

__kernel void binomial(__global const T* counts, __global const T* p, __global const long* keys, __global T* made,
                       const long count) {
  const long i = get_global_id(0);
  if (i >= count) return;
  Source source = source_of(keys[i]);
  const T n = counts[i], rare = fmin(p[i], 1 - p[i]);
  T k = isnan(n) || isnan(p[i]) ? NAN : 0;
  if (n > 0 && rare > 0) k = n * rare < 10 ? few(&source, n, rare) : many(&source, n, rare);
  made[i] = p[i] > (T)0.5 ? fmax(n, (T)0) - k : k;
}
"""

# Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. Below 1, the number of alpha + 1 is multiplied by
# u^(1 / alpha), which is often too small for its type, but not its logarithm.
GAMMA = """
__kernel void standard_gamma(__global const T* alphas, __global const long* keys, __global T* made, const int is_log, const long count) {
  const long i = get_global_id(0);
  if (i >= count) return;
  Source source = source_of(keys[i]);
  const T alpha = alphas[i], d = (alpha < 1 ? alpha + 1 : alpha) - (T)(1.0 / 3), c = 1 / sqrt(9 * d);
  T v = alpha == 0 ? 0 : alpha > 0 ? 1 : NAN;
  for (bool taken = !(alpha > 0) || isinf(alpha); !taken;) {
    const T x = sqrt(-2 * log(uniform(&source))) * cospi(2 * uniform(&source)), y = 1 + c * x;
    if (!(y > 0)) continue;
    v = y * y * y;
    taken = log(uniform(&source)) < (T)0.5 * x * x + d * (1 - v + log(v));
  }
  const T power = alpha > 0 && alpha < 1 ? log(uniform(&source)) / alpha : 0;
  made[i] = is_log ? log(d * v) + power : d * v * exp(power);
}
"""


def by_element(name: str, source: str, defines: Any) -> Any:
    """Returns the op of a kernel with a work-item for each element of its first argument, whose type and shape `made` has."""
    return kernel(
        f"ocl::{name}",
        source,
        outputs={"made": lambda x, *_: torch.empty_like(x)},
        values={"count": lambda x, *_: x.numel()},
        global_size=lambda x, *_: x.numel(),
        defines=defines,
    )


def _macros(x: torch.Tensor, *_: Any) -> dict[str, Any]:
    return {"T": x.dtype, "IS_DOUBLE": int(x.dtype == torch.float64)}


DRAWN = [
    by_element("poisson", WORDS + PROBABILITIES + POISSON, _macros),
    by_element("binomial", WORDS + PROBABILITIES + BINOMIAL, _macros),
    by_element("standard_gamma", WORDS + GAMMA, _macros),
]
