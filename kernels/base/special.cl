// kernels/base/special.cl: special functions of csrc/ir/ops.def: Bessel, Airy, gamma, zeta, the normal distribution,
// polynomials.
// The rules are those of kernels/base/ops.cl; M is int, whatever the size of T, as ldexp takes it. op_series_* are the rows of kernels/base/special_series.def. `any(c ? -1 : 0)`
// tests whether c holds in some lane: it works for scalars, whose comparisons give 1, and for vectors, whose comparisons
// give -1.
#ifndef OCL_INLINE
#define OCL_INLINE static inline
#endif
#ifndef T
#define T float
#define REAL(x) ((T)(x))
#define OCL_SERIES(name, ...) T op_series_##name(T t);
#include "special_series.def"
#define N int
#define M int
#define convert_T convert_float
#endif

// ---- modified Bessel functions ----

OCL_INLINE T op_i0e(T x) {
  const T a = fabs(x);
  return a <= REAL(8.0) ? op_series_i0e_small(a * REAL(0.25) - REAL(1.0))
                        : op_series_i0e_large(REAL(16.0) / a - REAL(1.0)) / sqrt(a);
}

OCL_INLINE T op_i0(T x) {
  return exp(fabs(x)) * op_i0e(x);
}

OCL_INLINE T op_i1e(T x) {
  const T a = fabs(x);
  const T large = copysign(op_series_i1e_large(REAL(16.0) / a - REAL(1.0)) / sqrt(a), x);
  return a <= REAL(8.0) ? x * op_series_i1e_small(a * REAL(0.25) - REAL(1.0)) : large;
}

OCL_INLINE T op_i1(T x) {
  return exp(fabs(x)) * op_i1e(x);
}

// Returns exp(x) K0(x), with one series up to 2 and one above. The result is infinite at 0, and NaN below.
OCL_INLINE T op_k0e(T x) {
  const T small = exp(x) * (op_series_k0_small(x * x * REAL(0.5) - REAL(1.0)) - log(x * REAL(0.5)) * op_i0(x));
  const T result = x <= REAL(2.0) ? small : op_series_k0_large(REAL(4.0) / x - REAL(1.0)) / sqrt(x);
  return x == REAL(0.0) ? (T)(INFINITY) : (x < REAL(0.0) ? (T)(NAN) : result);
}

OCL_INLINE T op_k0(T x) {
  const T small = op_series_k0_small(x * x * REAL(0.5) - REAL(1.0)) - log(x * REAL(0.5)) * op_i0(x);
  const T result = x <= REAL(2.0) ? small : exp(-x) * op_series_k0_large(REAL(4.0) / x - REAL(1.0)) / sqrt(x);
  return x == REAL(0.0) ? (T)(INFINITY) : (x < REAL(0.0) ? (T)(NAN) : result);
}

OCL_INLINE T op_k1(T x) {
  const T small = op_series_k1_small(x * x * REAL(0.5) - REAL(1.0)) / x + log(x * REAL(0.5)) * op_i1(x);
  const T result = x <= REAL(2.0) ? small : exp(-x) * op_series_k1_large(REAL(4.0) / x - REAL(1.0)) / sqrt(x);
  return x == REAL(0.0) ? (T)(INFINITY) : (x < REAL(0.0) ? (T)(NAN) : result);
}

OCL_INLINE T op_k1e(T x) {
  const T small = exp(x) * (op_series_k1_small(x * x * REAL(0.5) - REAL(1.0)) / x + log(x * REAL(0.5)) * op_i1(x));
  const T result = x <= REAL(2.0) ? small : op_series_k1_large(REAL(4.0) / x - REAL(1.0)) / sqrt(x);
  return x == REAL(0.0) ? (T)(INFINITY) : (x < REAL(0.0) ? (T)(NAN) : result);
}

// ---- Bessel functions: up to 8 a series with zeros divided out, above 8 Hankel's expansion ----
// The expansion's cos and sin of x - pi/4 are computed from cos x and sin x.

OCL_INLINE T op_bessel_j0(T v) {
  const T x = fabs(v), y = x * x, z = REAL(128.0) / y - REAL(1.0), c = cos(x), s = sin(x);
  const T small = op_series_j0_small(y * REAL(0.03125) - REAL(1.0)) * (y - REAL(5.7831859629467845)) *
                  (y - REAL(30.471262343662087));
  const T large = (op_series_p0(z) * (c + s) - op_series_q0(z) / x * (s - c)) / sqrt(REAL(3.14159265358979323846) * x);
  return x <= REAL(8.0) ? small : large;
}

OCL_INLINE T op_bessel_j1(T v) {
  const T x = fabs(v), y = x * x, z = REAL(128.0) / y - REAL(1.0), c = cos(x), s = sin(x);
  const T small = op_series_j1_small(y * REAL(0.03125) - REAL(1.0)) * (y - REAL(14.681970642123893)) *
                  (y - REAL(49.218456321694602));
  const T large = (op_series_p1(z) * (s - c) + op_series_q1(z) / x * (s + c)) / sqrt(REAL(3.14159265358979323846) * x);
  return x <= REAL(8.0) ? v * small : (v < REAL(0.0) ? -large : large);
}

OCL_INLINE T op_bessel_y0(T x) {
  const T y = x * x, z = REAL(128.0) / y - REAL(1.0), c = cos(x), s = sin(x);
  const T small =
      op_series_y0_small(y * REAL(0.03125) - REAL(1.0)) + REAL(0.63661977236758134308) * log(x) * op_bessel_j0(x);
  const T large = (op_series_p0(z) * (s - c) + op_series_q0(z) / x * (c + s)) / sqrt(REAL(3.14159265358979323846) * x);
  const T result = x <= REAL(8.0) ? small : large;
  return x == REAL(0.0) ? (T)(-INFINITY) : (x < REAL(0.0) ? (T)(NAN) : result);
}

OCL_INLINE T op_bessel_y1(T x) {
  const T y = x * x, z = REAL(128.0) / y - REAL(1.0), c = cos(x), s = sin(x);
  const T small = x * op_series_y1_small(y * REAL(0.03125) - REAL(1.0)) +
                  REAL(0.63661977236758134308) * (log(x) * op_bessel_j1(x) - REAL(1.0) / x);
  const T large = (op_series_q1(z) / x * (s - c) - op_series_p1(z) * (s + c)) / sqrt(REAL(3.14159265358979323846) * x);
  const T result = x <= REAL(8.0) ? small : large;
  return x == REAL(0.0) ? (T)(-INFINITY) : (x < REAL(0.0) ? (T)(NAN) : result);
}

OCL_INLINE T op_spherical_bessel_j0(T x) {
  const T y = x * x;
  T series = REAL(1.0) - y * REAL(9.0909090909090909e-3);
  series = REAL(1.0) - y * REAL(1.3888888888888889e-2) * series;
  series = REAL(1.0) - y * REAL(2.3809523809523810e-2) * series;
  series = REAL(1.0) - y * REAL(0.05) * series;
  series = REAL(1.0) - y * REAL(0.16666666666666667) * series;
  return fabs(x) < REAL(0.5) ? series : (isinf(x) ? REAL(0.0) : sin(x) / x);
}

// Below -4 Ai is computed by modulus and phase, above 1 by its exponential decay, between them by a series. At infinity
// it is NaN, as in PyTorch.
OCL_INLINE T op_airy_ai(T x) {
  const T a = fabs(x), z = REAL(0.66666666666666667) * a * sqrt(a), root = sqrt(sqrt(a));
  const T near = op_series_airy_middle((REAL(2.0) * x + REAL(3.0)) * REAL(0.2));
  const T decay =
      exp(-z) * op_series_airy_decay(REAL(1.33333333333333333) / z - REAL(1.0)) * REAL(0.28209479177387814347) / root;
  const T t = REAL(56.888888888888889) / (z * z) - REAL(1.0), c = cos(z), s = sin(z);
  const T wave =
      (op_series_airy_p(t) * (c + s) + op_series_airy_q(t) / z * (s - c)) * REAL(0.39894228040143267794) / root;
  const T inside = x > REAL(1.0) ? decay : (x < REAL(-4.0) ? wave : near);
  return isinf(x) ? (T)(NAN) : inside;
}

// ---- the normal distribution ----

// Returns exp(x^2) erfc(x). For x < 0 the rounding error of x^2 is corrected.
OCL_INLINE T op_erfcx(T x) {
  const T a = fabs(x), square = x * x, rest = fma(x, x, -square);
  const T right = op_series_erfcx(REAL(1.0) - REAL(7.5) / (a + REAL(3.75))) / (REAL(1.0) + REAL(2.0) * a);
  const T grown = exp(square);
  return x < REAL(0.0) ? (isinf(grown) ? grown : REAL(2.0) * (grown + grown * rest) - right) : right;
}

OCL_INLINE T op_log_ndtr(T x) {
  const T t = x * REAL(0.70710678118654752440);
  return x < REAL(-1.0) ? log(op_erfcx(-t) * REAL(0.5)) - t * t : log1p(erfc(t) * REAL(-0.5));
}

// Returns the quantile of the normal distribution. Near p = 1/2 it is an odd series. In the tails it is -s plus a
// series in 1/s, with s = sqrt(-2 log p).
OCL_INLINE T op_ndtri(T p) {
  const T y = p - REAL(0.5), q = p > REAL(0.5) ? REAL(1.0) - p : p, s = sqrt(REAL(-2.0) * log(q)), r = REAL(1.0) / s;
  const T middle = y * op_series_ndtri_middle(y * y * REAL(13.333333333333333) - REAL(1.0));
  const T close = op_series_ndtri_tail((r - REAL(0.125)) * REAL(5.3333333333333333) - REAL(1.0));
  const T far = op_series_ndtri_far_tail((r - REAL(0.025)) * REAL(20.0) - REAL(1.0));
  const T tail = (s <= REAL(8.0) ? close : far) - s;
  const T inside = y * y <= REAL(0.15) ? middle : (p > REAL(0.5) ? -tail : tail);
  const T edge = p == REAL(0.0) ? (T)(-INFINITY) : (p == REAL(1.0) ? (T)(INFINITY) : (T)(NAN));
  return ((p > REAL(0.0)) & (p < REAL(1.0))) ? inside : edge;
}

// ---- gamma and zeta ----

// Returns the sum over k of (q + k)^-x: adds the terms while k < 9 or q + k <= 9, then uses Euler and Maclaurin's
// formula.
OCL_INLINE T op_zeta(T x, T q) {
  const N pole = (q <= REAL(0.0)) & (q == floor(q));
  const N undefined = (x < REAL(1.0)) | ((q <= REAL(0.0)) & (q != floor(q)) & (x != floor(x))) | isnan(x) | isnan(q);
  const N walks = !(pole | undefined | isinf(q)) & (x != REAL(1.0));
  T w = q, sum = REAL(0.0);
  for (int k = 0;; ++k) {
    const N more = walks & (((T)(k) < REAL(9.0)) | (w <= REAL(9.0)));
    if (!any(more ? (N)(-1) : (N)(0))) break;
    sum = more ? sum + pow(w, -x) : sum;
    w = more ? w + REAL(1.0) : w;
  }
  const T b = pow(w, -x);
  // The coefficients are Bernoulli numbers over factorials. Each `term` is computed from the previous one.
  T term = b * x / w, tail = term * REAL(8.3333333333333333e-2);
  term = term * (x + REAL(1.0)) / w * (x + REAL(2.0)) / w;
  tail = tail - term * REAL(1.3888888888888889e-3);
  term = term * (x + REAL(3.0)) / w * (x + REAL(4.0)) / w;
  tail = tail + term * REAL(3.3068783068783069e-5);
  term = term * (x + REAL(5.0)) / w * (x + REAL(6.0)) / w;
  tail = tail - term * REAL(8.2671957671957672e-7);
  term = term * (x + REAL(7.0)) / w * (x + REAL(8.0)) / w;
  tail = tail + term * REAL(2.0876756987868099e-8);
  term = term * (x + REAL(9.0)) / w * (x + REAL(10.0)) / w;
  tail = tail - term * REAL(5.2841901386874932e-10);
  const T result = sum + b * w / (x - REAL(1.0)) + REAL(0.5) * b + (b == REAL(0.0) ? REAL(0.0) : tail);
  const T regular = undefined ? (T)(NAN) : result;
  return ((x == REAL(1.0)) | (pole & (x > REAL(1.0)))) ? (T)(INFINITY) : regular;
}

// Uses the reflection formula below 1/2, six steps of the recurrence, then the asymptotic series. Source:
// ATen/native/Math.h (trigamma).
OCL_INLINE T op_trigamma(T v) {
  const N reflected = v < REAL(0.5);
  const T s = sin(REAL(3.14159265358979323846) * v);
  T x = reflected ? REAL(1.0) - v : v, sum = reflected ? -REAL(9.86960440108935861883) / (s * s) : REAL(0.0);
  for (int k = 0; k < 6; ++k) {
    sum = sum + REAL(1.0) / (x * x);
    x = x + REAL(1.0);
  }
  const T y = REAL(1.0) / (x * x);
  const T series = y * (REAL(0.16666666666666667) - y * (REAL(0.033333333333333333) - y * REAL(0.023809523809523810)));
  sum = sum + (REAL(1.0) + REAL(0.5) / x + series) / x;
  return reflected ? -sum : sum;
}

// Returns x^a exp(-x) / gamma(a + 1): directly up to a = 10, above by Stirling's formula about x = a.
OCL_INLINE T op_igamma_factor(T a, T x) {
  const T u = (x - a) / a, r = REAL(1.0) / (a * a);
  const T stirling =
      (REAL(8.3333333333333333e-2) - r * (REAL(2.7777777777777778e-3) - r * REAL(7.9365079365079365e-4))) / a;
  const T far = exp(a * (log1p(u) - u) - stirling) / sqrt(REAL(6.28318530717958647693) * a);
  const T near =
      x > REAL(60.0) ? exp(a * log(x) - x - lgamma(a + REAL(1.0))) : pow(x, a) * exp(-x) / tgamma(a + REAL(1.0));
  return a > REAL(10.0) ? far : near;
}

// Returns the sum over k of x^k / ((a + 1) ... (a + k)), which is the lower incomplete gamma function divided by
// igamma_factor. The loop ends when all `wanted` lanes have converged; other lanes do not matter.
OCL_INLINE T op_igamma_series(T a, T x, N wanted) {
  T sum = REAL(1.0), term = REAL(1.0), r = a;
  for (int k = 0; k < 2000; ++k) {
    const N more = wanted & (term > sum * REAL(1.0e-17));
    if (!any(more ? (N)(-1) : (N)(0))) break;
    r = r + REAL(1.0);
    term = term * (x / r);
    sum = sum + term;
  }
  return sum;
}

// Returns the upper incomplete gamma function divided by a * igamma_factor, by Legendre's continued fraction in Lentz's
// forward form. The loop ends when all `wanted` lanes have converged.
OCL_INLINE T op_igammac_fraction(T a, T x, N wanted) {
  const T tiny = REAL(1.0e-30);
  T b = x + REAL(1.0) - a, c = REAL(1.0) / tiny, d = REAL(1.0) / (fabs(b) < tiny ? tiny : b), h = d, change = REAL(0.0);
  for (int k = 1; k < 2000; ++k) {
    const N more = wanted & (fabs(change - REAL(1.0)) > REAL(1.0e-16));
    if (!any(more ? (N)(-1) : (N)(0))) break;
    const T f = (T)(k) * (a - (T)(k));
    b = b + REAL(2.0);
    d = f * d + b;
    c = b + f / c;
    d = REAL(1.0) / (fabs(d) < tiny ? tiny : d);
    c = fabs(c) < tiny ? tiny : c;
    change = d * c;
    h = more ? h * change : h;
  }
  return h;
}

OCL_INLINE T op_igamma(T a, T x) {
  const N usual = (a > REAL(0.0)) & (x > REAL(0.0)) & isfinite(a) & isfinite(x), series = (x <= REAL(1.0)) | (x <= a);
  const T factor = op_igamma_factor(a, x);
  const T low = factor * op_igamma_series(a, x, usual & series);
  const T high = REAL(1.0) - factor * a * op_igammac_fraction(a, x, usual & !series);
  const T result = series ? low : high;
  const T edge = x == REAL(0.0) ? (a == REAL(0.0) ? (T)(NAN) : REAL(0.0))
                                : (isinf(a) ? (isinf(x) ? (T)(NAN) : REAL(0.0)) : REAL(1.0));
  const N bad = (a < REAL(0.0)) | (x < REAL(0.0)) | isnan(a) | isnan(x);
  return bad ? (T)(NAN) : (usual ? result : edge);
}

OCL_INLINE T op_igammac(T a, T x) {
  const N usual = (a > REAL(0.0)) & (x > REAL(0.0)) & isfinite(a) & isfinite(x), series = (x <= REAL(1.0)) | (x <= a);
  const T factor = op_igamma_factor(a, x);
  const T low = factor * op_igamma_series(a, x, usual & series);
  const T high = factor * a * op_igammac_fraction(a, x, usual & !series);
  const T result = series ? REAL(1.0) - low : high;
  const T edge = x == REAL(0.0) ? (a == REAL(0.0) ? (T)(NAN) : REAL(1.0))
                                : (isinf(a) ? (isinf(x) ? (T)(NAN) : REAL(1.0)) : REAL(0.0));
  const N bad = (a < REAL(0.0)) | (x < REAL(0.0)) | isnan(a) | isnan(x);
  return bad ? (T)(NAN) : (usual ? result : edge);
}

// ---- orthogonal polynomials of degree trunc(n), 0 below degree 0 ----

// Returns P_n(x) by the recurrence that all four kinds of Chebyshev polynomials share, from P_0 = 1 and P_1 = `first`.
OCL_INLINE T op_chebyshev_walk(T x, T n, T first) {
  T p = REAL(1.0), q = first;
  for (int k = 2;; ++k) {
    const N more = ((T)(k) <= n) & !isnan(q);
    if (!any(more ? (N)(-1) : (N)(0))) break;
    const T r = (x + x) * q - p;
    p = more ? q : p;
    q = more ? r : q;
  }
  return n < REAL(0.0) ? REAL(0.0) : (n < REAL(1.0) ? REAL(1.0) : q);
}

// High degrees inside the interval are computed by a cosine, because the recurrence would need many steps. -1 and 1
// have closed forms.
OCL_INLINE T op_chebyshev_t(T x, T degree) {
  const T n = trunc(degree), sign = fmod(n, REAL(2.0)) == REAL(0.0) ? REAL(1.0) : x;
  const N edge = (fabs(x) == REAL(1.0)) & (n >= REAL(0.0)), far = (n > REAL(64.0)) & (fabs(x) < REAL(1.0));
  const T walked = op_chebyshev_walk(x, (edge | far) ? REAL(1.0) : n, x);
  return edge ? sign : (far ? cos(n * acos(x)) : walked);
}

OCL_INLINE T op_chebyshev_u(T x, T degree) {
  const T n = trunc(degree), sign = fmod(n, REAL(2.0)) == REAL(0.0) ? REAL(1.0) : x, angle = acos(x);
  const N edge = (fabs(x) == REAL(1.0)) & (n >= REAL(0.0)), far = (n > REAL(64.0)) & (fabs(x) < REAL(1.0));
  const T walked = op_chebyshev_walk(x, (edge | far) ? REAL(1.0) : n, x + x);
  return edge ? (n + REAL(1.0)) * sign : (far ? sin((n + REAL(1.0)) * angle) / sin(angle) : walked);
}

OCL_INLINE T op_chebyshev_v(T x, T degree) {
  const T n = trunc(degree), sign = fmod(n, REAL(2.0)) == REAL(0.0) ? REAL(1.0) : x, angle = acos(x);
  const N edge = (fabs(x) == REAL(1.0)) & (n >= REAL(0.0)), far = (n > REAL(64.0)) & (fabs(x) < REAL(1.0));
  const T walked = op_chebyshev_walk(x, (edge | far) ? REAL(1.0) : n, x + x - REAL(1.0));
  const T ends = x > REAL(0.0) ? REAL(1.0) : (n + n + REAL(1.0)) * sign;
  return edge ? ends : (far ? cos((n + REAL(0.5)) * angle) / cos(angle * REAL(0.5)) : walked);
}

OCL_INLINE T op_chebyshev_w(T x, T degree) {
  const T n = trunc(degree), sign = fmod(n, REAL(2.0)) == REAL(0.0) ? REAL(1.0) : x, angle = acos(x);
  const N edge = (fabs(x) == REAL(1.0)) & (n >= REAL(0.0)), far = (n > REAL(64.0)) & (fabs(x) < REAL(1.0));
  const T walked = op_chebyshev_walk(x, (edge | far) ? REAL(1.0) : n, x + x + REAL(1.0));
  const T ends = x > REAL(0.0) ? n + n + REAL(1.0) : sign;
  return edge ? ends : (far ? sin((n + REAL(0.5)) * angle) / sin(angle * REAL(0.5)) : walked);
}

// Returns a Hermite polynomial by H_(k+1) = scale (x H_k - k H_(k-1)), from H_0 = 1 and H_1 = scale x. Beyond the
// highest degree that PyTorch computes the result is NaN.
OCL_INLINE T op_hermite_walk(T x, T degree, T scale) {
  const T n = trunc(degree), most = sizeof(x) == OCL_LANES * 4 ? REAL(128.0) : REAL(512.0);
  T p = REAL(1.0), q = scale * x;
  for (int k = 1;; ++k) {
    const N more = ((T)(k) < n) & (n <= most);
    if (!any(more ? (N)(-1) : (N)(0))) break;
    const T r = scale * (x * q - (T)(k)*p);
    p = more ? q : p;
    q = more ? r : q;
  }
  const T low = n < REAL(0.0) ? REAL(0.0) : (n < REAL(1.0) ? REAL(1.0) : q);
  return n > most ? (T)(NAN) : low;
}

OCL_INLINE T op_hermite_h(T x, T n) {
  return op_hermite_walk(x, n, REAL(2.0));
}

OCL_INLINE T op_hermite_he(T x, T n) {
  return op_hermite_walk(x, n, REAL(1.0));
}

OCL_INLINE T op_laguerre(T x, T degree) {
  const T n = x == REAL(0.0) ? fmin(trunc(degree), REAL(0.0)) : trunc(degree);
  T p = REAL(1.0), q = REAL(1.0) - x;
  for (int k = 1;; ++k) {
    const N more = ((T)(k) < n) & !isnan(q);
    if (!any(more ? (N)(-1) : (N)(0))) break;
    const T r = (((T)(2 * k) + (REAL(1.0) - x)) * q - (T)(k)*p) / (T)(k + 1);
    p = more ? q : p;
    q = more ? r : q;
  }
  return n < REAL(0.0) ? REAL(0.0) : (n < REAL(1.0) ? REAL(1.0) : q);
}

OCL_INLINE T op_legendre(T x, T degree) {
  const T n = trunc(degree), sign = fmod(n, REAL(2.0)) == REAL(0.0) ? REAL(1.0) : x;
  const N edge = (fabs(x) == REAL(1.0)) & (n >= REAL(0.0));
  T p = REAL(1.0), q = x;
  for (int k = 1;; ++k) {
    const N more = ((T)(k) < n) & !isnan(q) & !edge;
    if (!any(more ? (N)(-1) : (N)(0))) break;
    const T r = ((T)(2 * k + 1) * x * q - (T)(k)*p) / (T)(k + 1);
    p = more ? q : p;
    q = more ? r : q;
  }
  const T inside = n < REAL(0.0) ? REAL(0.0) : (n < REAL(1.0) ? REAL(1.0) : q);
  return edge ? sign : inside;
}

// ---- parts of a number ----

// x = mantissa * 2^exponent, 1/2 <= |mantissa| < 1; 0, inf and NaN are their own mantissa with exponent 0.
OCL_INLINE T op_frexp_exponent(T x) {
  const T exponent = convert_T(ilogb(x) + (M)(1));
  return ((x != REAL(0.0)) & isfinite(x)) ? exponent : REAL(0.0);
}

OCL_INLINE T op_frexp_mantissa(T x) {
  const T mantissa = ldexp(x, -(ilogb(x) + (M)(1)));
  return ((x != REAL(0.0)) & isfinite(x)) ? mantissa : x;
}

// x * 2^exponent, rounded once, for an integer exponent. 2^exponent alone may be too large or too small.
OCL_INLINE T op_ldexp(T x, T exponent) {
  return ldexp(x, convert_M(clamp(exponent, REAL(-5000.0), REAL(5000.0))));
}
