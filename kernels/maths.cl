// kernels/maths.cl: float functions of CPU devices, in place of a runtime's builtins or of the functions of ops.cl with the same name after op_own_.
// Runtimes differ by 12 times in what a builtin costs, and none inlines all of them; these are a few dozen vector instructions everywhere.
// The rules are those of ops.cl, with T = float or a vector of floats; csrc/codegen/op_library.h chooses.
//
//   function    at most, ulp            where; mean ulp is below 0.4 everywhere
//   exp         1                       all x, subnormal results included; above 88.7228 inf
//   tanh        2.5                     all x
//   erf         2                       all x
//   gelu_erf    5.5                     x >= -5.5; below, 1e-7 absolute (x * Phi(x) itself is below 1.1e-7 there; 0 below -13)
//   gelu_tanh   3 + |2 u|               u the argument of its tanh; in place of a difference that loses all digits for negative x
//   sigmoid     2.5                     x > -88 (below: 0), from exp
//   silu        3                       x > -88, from exp
// tests/device/test_maths.py sweeps the arguments and holds each to its number.
#ifndef T
#include "ops.cl"
#endif

// e^x = 2^n e^r, r = x - n ln 2 in two steps, e^r - 1 - r = r^2 * polynomial. The integer n comes from the bits of m: rint() is slow on some runtimes.
// 2^n in two factors reaches subnormal numbers and infinity.
OCL_INLINE T op_own_exp(T x) {
  const T low = x < REAL(-104.0) ? REAL(-104.0) : x, c = low > REAL(89.0) ? REAL(89.0) : low;
  const T m = fma(c, REAL(1.44269504), REAL(12582912.0)), z = m - REAL(12582912.0);
  const T r = fma(z, REAL(2.12194440e-4), fma(z, REAL(-0.693359375), c));
  T y = REAL(1.38201076e-3);
  y = fma(y, r, REAL(8.36868491e-3));
  y = fma(y, r, REAL(4.16682735e-2));
  y = fma(y, r, REAL(0.166665211));
  y = fma(y, r, REAL(0.49999994));
  const N n = as_N(m) - (N)(0x4b400000), half_n = n >> (N)(1);
  const T first = as_T((half_n + (N)(127)) << (N)(23)), second = as_T((n - half_n + (N)(127)) << (N)(23));
  return (fma(y, r * r, r) + REAL(1.0)) * first * second;
}

// e = e^(-2|x|) - 1 without cancellation: 2^n (e^r - 1) + (2^n - 1). tanh |x| = -e / (e + 2).
OCL_INLINE T op_own_tanh(T x) {
  const T a = fabs(x), c = a > REAL(10.0) ? REAL(-20.0) : REAL(-2.0) * a;
  const T m = fma(c, REAL(1.44269504), REAL(12582912.0)), z = m - REAL(12582912.0);
  const T r = fma(z, REAL(2.12194440e-4), fma(z, REAL(-0.693359375), c));
  T y = REAL(1.97633824e-4);
  y = fma(y, r, REAL(1.39323424e-3));
  y = fma(y, r, REAL(8.33354425e-3));
  y = fma(y, r, REAL(4.16664928e-2));
  y = fma(y, r, REAL(0.166666657));
  y = fma(y, r, REAL(0.5));
  const T power = as_T((as_N(m) - (N)(0x4b400000) + (N)(127)) << (N)(23));
  const T e = fma(power, fma(y, r * r, r), power - REAL(1.0));
  return copysign(-e / (e + REAL(2.0)), x);
}

// |x| < 0.85: x times a polynomial of x^2. Above: 1 - e^p(|x|), p the polynomial of log erfc.
OCL_INLINE T op_own_erf(T x) {
  const T a = fabs(x), s = a * a, t = a > REAL(3.95) ? REAL(3.95) : a;
  T near = REAL(-5.06410375e-4);
  near = fma(near, s, REAL(4.82025929e-3));
  near = fma(near, s, REAL(-2.66534369e-2));
  near = fma(near, s, REAL(0.11278785));
  near = fma(near, s, REAL(-0.376122087));
  near = fma(near, s, REAL(0.12837914));
  T p = REAL(-1.98303642e-5);
  p = fma(p, t, REAL(4.20066295e-4));
  p = fma(p, t, REAL(-4.10251319e-3));
  p = fma(p, t, REAL(2.49423664e-2));
  p = fma(p, t, REAL(-0.108012013));
  p = fma(p, t, REAL(-0.633584976));
  p = fma(p, t, REAL(-1.12940001));
  p = fma(p, t, REAL(1.51405664e-4));
  return a < REAL(0.85) ? fma(x, near, x) : copysign(REAL(1.0) - op_own_exp(p), x);
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), Phi(-t) = K e^(p(t) - t^2/2), with t^2 and its rounding error both in the exponent.
OCL_INLINE T op_own_gelu_erf(T x) {
  const T a = fabs(x), t = a > REAL(13.0) ? REAL(13.0) : a;
  const T v = fma(t > REAL(5.5) ? REAL(5.5) : t, REAL(0.363636364), REAL(-1.0));
  T p = REAL(0.000129541862);
  p = fma(p, v, REAL(-0.000292902812));
  p = fma(p, v, REAL(0.00010079662));
  p = fma(p, v, REAL(0.000507425051));
  p = fma(p, v, REAL(-0.00225607143));
  p = fma(p, v, REAL(0.00769501785));
  p = fma(p, v, REAL(-0.0216538645));
  p = fma(p, v, REAL(0.0540620349));
  p = fma(p, v, REAL(-0.12705785));
  p = fma(p, v, REAL(0.298928112));
  p = fma(p, v, REAL(-0.829877138)) * v;
  const T s = t * t, h = s * REAL(-0.5), rest = fma(t, t, -s) * REAL(-0.5);
  const T m = fma(h + p, REAL(1.44269504), REAL(12582912.0)), z = m - REAL(12582912.0);
  const T r = fma(z, REAL(2.12194440e-4), fma(z, REAL(-0.693359375), h) + (p + rest));
  T y = REAL(1.38201076e-3);
  y = fma(y, r, REAL(8.36868491e-3));
  y = fma(y, r, REAL(4.16682735e-2));
  y = fma(y, r, REAL(0.166665211));
  y = fma(y, r, REAL(0.49999994));
  const T power = as_T((as_N(m) - (N)(0x4b400000) + (N)(127)) << (N)(23));
  const T q = a > REAL(13.0) ? REAL(0.0) : (fma(y, r * r, r) + REAL(1.0)) * power * REAL(0.130724734);
  return (x < REAL(0.0) ? REAL(0.0) : x) - t * q;
}

// (1 + tanh u) / 2 = 1 / (1 + e^(-2u))
OCL_INLINE T op_own_gelu_tanh(T x) {
  return x / (REAL(1.0) + op_own_exp(REAL(-1.5957691216057308) * (x + REAL(0.044715) * x * x * x)));
}
