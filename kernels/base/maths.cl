// kernels/base/maths.cl: float functions for CPU devices, and for GPUs whose builtins branch. They replace builtins of
// the runtime, or the functions op_own_NAME of base/ops.cl.
//
// The cost of a builtin differs by up to 12 times between runtimes, and no runtime inlines all of them. These functions
// are a few dozen vector instructions on every runtime. The rules are those of base/ops.cl, with T = float or a vector
// of floats. csrc/codegen/op_library.h chooses between a builtin and a function of this file.
//
//   function        largest error, ulp  range and remarks; the mean error is below 0.4 ulp everywhere
//   exp             1                   all x, subnormal results included; above 88.7228 inf
//   exp_falling     1                   x <= 0; below -88, where the result would be subnormal, 0
//   tanh            2.5                 all x
//   erf             2                   all x
//   gelu_erf        8                   x >= -2.5; 50 for x >= -5.5, where the formula x/2 (1 + erf) has no correct
//                                       digit; for x < 0 the absolute error of x Phi(x) is below 1.1e-7
//   gelu_erf_slope                      all x: absolute error 1.2e-7 (by erf and an exponential it would be 2.6e-7)
//   gelu_tanh       3 + |2 u|           u is the argument of its tanh; replaces a difference that loses all digits for
//                                       negative x
//   sigmoid         2.5                 x > -88 (below: 0), by exp
//   silu            3                   x > -88, by exp
// Functions op_short_NAME are for GPUs, where only their value rounded to 16 bits is used:
//   gelu_erf        relative error 4e-6 for x < 0
//   gelu_erf_slope  absolute error 5e-6
//   gelu_tanh       relative error 1e-6 + |2 u| * 1e-7
//   gelu_tanh_slope absolute error 1e-6
//   sigmoid, silu   relative error 1e-6 + |x| * 1e-7
// Function op_short_cpu_gelu_erf is the same for CPUs: relative error 8e-6 for x < 0.
// Polynomials are evaluated in halves where a loop does little else: a CPU waits for the steps of one sum after another.
// tests/device/kernels/test_maths.py compares each function with its bound, over all arguments.
#ifndef T
#include "base/ops.cl"
#endif

// Computes e^x = 2^n e^r, with r = x - n ln 2 computed in two steps and e^r - 1 - r = r^2 * polynomial. The integer n
// comes from the bits of m, because rint() is slow on some runtimes. 2^n is applied as two factors, so that subnormal
// results and infinity are reached.
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

// Returns e^c, if e^c and 2^n are normal numbers, or 2^n is 0 (n = -127).
OCL_INLINE T op_own_exp_within(T c) {
  const T m = fma(c, REAL(1.44269504), REAL(12582912.0)), z = m - REAL(12582912.0);
  const T r = fma(z, REAL(2.12194440e-4), fma(z, REAL(-0.693359375), c));
  T y = REAL(1.38201076e-3);
  y = fma(y, r, REAL(8.36868491e-3));
  y = fma(y, r, REAL(4.16682735e-2));
  y = fma(y, r, REAL(0.166665211));
  y = fma(y, r, REAL(0.49999994));
  return (fma(y, r * r, r) + REAL(1.0)) * as_T((as_N(m) << (N)(23)) + (N)(0x3f800000));
}

// Returns e^x if it lies between 2^-126 and 2^127.5. A smaller result becomes 2^-126, a larger one inf.
OCL_INLINE T op_own_exp_normal(T x) {
  const T low = x < REAL(-87.3) ? REAL(-87.3) : x;
  return op_own_exp_within(low > REAL(89.0) ? REAL(89.0) : low);
}

// Returns e^x for x <= 0, with half the instructions of the function for all x. Below -88 the result is 0.
OCL_INLINE T op_own_exp_falling(T x) {
  return op_own_exp_within(x < REAL(-88.0) ? REAL(-88.0) : x);
}

OCL_INLINE T op_own_softmax_sum(T m, T s, T k, T t) {
  const T e = m == k ? REAL(1.0) : op_own_exp_falling(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

// Computes tanh |x| = -e / (e + 2), where e = e^(-2|x|) - 1 = 2^n (e^r - 1) + (2^n - 1) has no cancellation.
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

// For |x| < 0.85 the result is x times a polynomial of x^2. Above it is 1 - e^p(|x|), where p is a polynomial for log
// erfc.
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
  return a < REAL(0.85) ? fma(x, near, x) : copysign(REAL(1.0) - op_own_exp_normal(p), x);
}

// Returns x Phi(x) = max(x, 0) - |x| Phi(-|x|), where Phi(-t) = e^p(t) / 2. The exponential is written out here,
// because it needs one power of two and no clamp of the exponent. So the function has half the instructions of erf.
OCL_INLINE T op_own_gelu_erf(T x) {
  const T a = fabs(x), t = a > REAL(5.5) ? REAL(5.5) : a, t2 = t * t, t4 = t2 * t2;
  const T low =
      fma(fma(REAL(4.7850986e-3), t, REAL(-3.63393836e-2)), t2, fma(REAL(-0.318308622), t, REAL(-0.797884703)));
  const T middle =
      fma(fma(REAL(-1.17693853e-5), t, REAL(6.8034904e-5)), t2, fma(REAL(-2.26661912e-4), t, REAL(4.23170241e-5)));
  const T high = fma(REAL(2.30982189e-9), t2, fma(REAL(-8.13777206e-8), t, REAL(1.28024828e-6)));
  const T p = fma(fma(high, t4, middle), t4, low) * t;
  const T m = fma(p, REAL(1.44269504), REAL(12582912.0)), z = m - REAL(12582912.0);
  const T r = fma(z, REAL(-0.693147181), p), r2 = r * r;
  const T y = fma(fma(REAL(1.38201076e-3), r2, fma(REAL(8.36868491e-3), r, REAL(4.16682735e-2))), r2,
                  fma(REAL(0.166665211), r, REAL(0.49999994)));
  const T half_power = as_T((as_N(m) << (N)(23)) + (N)(0x3f000000));
  const T tail = (fma(y, r2, r) + REAL(1.0)) * half_power;
  return fma(a > REAL(5.5) ? REAL(0.0) : -t, tail, x < REAL(0.0) ? x * REAL(0.0) : x);  // -inf gives nan, as in eager
}

// Returns the derivative of x Phi(x), which is Phi(x) + x phi(x). For t = -x >= 0 it is e^(-t^2/2) q(t) with a smooth
// q(t) = (Mills' ratio - t) / sqrt(2 pi). For x > 0 it is 1 minus the derivative at -x. q is constant beyond 5.25.
OCL_INLINE T op_own_gelu_erf_slope(T x) {
  const T a = fabs(x), t = a > REAL(5.25) ? REAL(5.25) : a;
  T q = REAL(-2.73182588e-09);
  q = fma(q, t, REAL(1.03809811e-07));
  q = fma(q, t, REAL(-1.79549511e-06));
  q = fma(q, t, REAL(1.88147042e-05));
  q = fma(q, t, REAL(-0.000134521702));
  q = fma(q, t, REAL(0.000703936035));
  q = fma(q, t, REAL(-0.00284258788));
  q = fma(q, t, REAL(0.00928886235));
  q = fma(q, t, REAL(-0.0256619789));
  q = fma(q, t, REAL(0.0619883351));
  q = fma(q, t, REAL(-0.132811487));
  q = fma(q, t, REAL(0.249971107));
  q = fma(q, t, REAL(-0.797882795));
  q = fma(q, t, REAL(0.5));
  const T tail = q * op_own_exp_falling(REAL(-0.5) * x * x);
  return fma(x, REAL(0.0), x > REAL(0.0) ? REAL(1.0) - tail : tail);  // infinities give nan, as in eager
}

// Uses (1 + tanh u) / 2 = 1 / (1 + e^(-2u)).
OCL_INLINE T op_own_gelu_tanh(T x) {
  return x / (REAL(1.0) + op_own_exp_normal(REAL(-1.5957691216057308) * (x + REAL(0.044715) * x * x * x)));
}

OCL_INLINE T op_own_sigmoid(T x) {
  return REAL(1.0) / (REAL(1.0) + op_own_exp_normal(-x));
}

OCL_INLINE T op_own_silu(T x) {
  return x / (REAL(1.0) + op_own_exp_normal(-x));
}

// Returns 2^x. On NVIDIA's GPUs it is one instruction, which flushes subnormal results to 0; without the flush, it takes four
// (op_library.cpp).
OCL_INLINE T op_fast_exp2(T x) {
  return native_exp2(x);
}

// As op_own_gelu_erf, with p in powers of two. p falls for large t, where the tail is 0.
OCL_INLINE T op_short_gelu_erf(T x) {
  const T t = fabs(x);
  T p = REAL(-1.79376036e-6);
  p = fma(p, t, REAL(6.07258258e-5));
  p = fma(p, t, REAL(-9.23183630e-4));
  p = fma(p, t, REAL(8.47684126e-3));
  p = fma(p, t, REAL(-5.38909286e-2));
  p = fma(p, t, REAL(-0.458541602));
  p = fma(p, t, REAL(-1.15121436));
  return fma(-t, op_fast_exp2(fma(p, t, REAL(-1.0))), x > REAL(0.0) ? x : REAL(0.0));
}

// As op_short_gelu_erf, with a polynomial for the power of two. t is cut off where the tail is below 2^-92.
OCL_INLINE T op_short_cpu_gelu_erf(T x) {
  const T a = fabs(x), t = a > REAL(11.0) ? REAL(11.0) : a, t2 = t * t;
  const T low = fma(fma(REAL(-5.38909286e-2), t, REAL(-0.458541602)), t2, fma(REAL(-1.15121436), t, REAL(-1.0)));
  const T high =
      fma(fma(REAL(-1.79376036e-6), t, REAL(6.07258258e-5)), t2, fma(REAL(-9.23183630e-4), t, REAL(8.47684126e-3)));
  const T p = fma(high, t2 * t2, low), m = p + REAL(12582912.0), r = p - (m - REAL(12582912.0)), r2 = r * r;
  const T y = fma(fma(REAL(9.57010179e-3), r2, fma(REAL(5.59178603e-2), r, REAL(0.240247448))), r2,
                  fma(REAL(0.693121815), r, REAL(0.999999261)));
  const T tail = as_T(as_N(y) + (as_N(m) << (N)(23)));
  return fma(-t, tail, x < REAL(0.0) ? x * REAL(0.0) : x);
}

// As op_own_gelu_erf_slope.
OCL_INLINE T op_short_gelu_erf_slope(T x) {
  const T a = fabs(x), t = a > REAL(6.0) ? REAL(6.0) : a;
  T q = REAL(-1.75007081e-4);
  q = fma(q, t, REAL(2.38751830e-3));
  q = fma(q, t, REAL(-1.42051582e-2));
  q = fma(q, t, REAL(5.05105369e-2));
  q = fma(q, t, REAL(-0.126424477));
  q = fma(q, t, REAL(0.248268753));
  q = fma(q, t, REAL(-0.797729790));
  q = fma(q, t, REAL(0.5));
  const T tail = q * op_fast_exp2(REAL(-0.721347520) * x * x);
  return fma(x, REAL(0.0), x > REAL(0.0) ? REAL(1.0) - tail : tail);  // infinities give nan, as in eager
}

OCL_INLINE T op_short_gelu_tanh(T x) {
  return x * native_recip(REAL(1.0) + op_fast_exp2(x * fma(x * x, REAL(-0.102943240), REAL(-2.30220820))));
}

// As op_gelu_tanh_slope. The factor that may become inf comes last: before it, the product is 0.
OCL_INLINE T op_short_gelu_tanh_slope(T x) {
  const T square = x * x,
          s = native_recip(REAL(1.0) + op_fast_exp2(x * fma(square, REAL(-0.102943240), REAL(-2.30220820))));
  return fma(x * (s * (REAL(1.0) - s)), fma(square, REAL(0.214064449), REAL(1.59576912)), s);
}

OCL_INLINE T op_short_sigmoid(T x) {
  return native_recip(REAL(1.0) + op_fast_exp2(REAL(-1.44269504) * x));
}

OCL_INLINE T op_short_silu(T x) {
  return x * native_recip(REAL(1.0) + op_fast_exp2(REAL(-1.44269504) * x));
}
