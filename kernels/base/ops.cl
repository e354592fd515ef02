// kernels/base/ops.cl: the functions of the scalar ops in csrc/ir/ops.def and csrc/ir/reductions.def. Each is written
// once for scalars and vectors. csrc/codegen/op_library.h copies the functions that a kernel calls into its text, with
// T replaced by float, double, int, long or a vector of these. Alone, the file compiles with T = float, and int for the
// integers.
//
// Rules for a function:
//   Types: T is the value's type; N is a signed integer of T's size, which comparing two T gives (0/1 in scalars, 0/-1 in
//   vectors); U is unsigned N. W is the unsigned type that integers T are added in: U, or uint for a scalar that is
//   smaller.
//   Integers use opi_add, opi_sub, opi_mul and opi_shl in place of + - * and <<, because C leaves overflow undefined.
//   There is no `if` on values. Use c ? a : b, with c of type N and both branches of the same type.
//   REAL(x) is a constant, OCL_LANES the width of the vector. There are no native_ or fast functions.
//   Functions are separated by empty lines. op_NAME serves floating point, and integers if there is no opi_NAME.
#ifndef OCL_INLINE
#define OCL_INLINE static inline
#endif
#ifndef T
#include "philox.cl"
#define OCL_OPS_ALONE
#define T float
#define N int
#define U uint
#define W uint
#define REAL(x) ((T)(x))
#define OCL_SERIES(name, ...) T op_series_##name(T t);
#include "special_series.def"
#define OCL_LANES 1
#define convert_T convert_float
#define convert_N convert_int
#define convert_U convert_uint
#define convert_W convert_uint
#define as_T as_float
#define as_N as_int
#define as_U as_uint
#endif

// ---- storage ----

// Rounds to 8 bits of mantissa (bf16), ties to even. NaN stays NaN, even if its payload is only in the lower bits. No
// shift depends on ?: because one CPU compiler crashes on that when it vectorises a loop over strided elements.
OCL_INLINE float op_round_bf16(float x) {
  const uint u = as_uint(x), rounded = u + (uint)(0x7fff) + ((u >> 16) & (uint)(1));
  return as_float((isnan(x) ? u | (uint)(0x400000) : rounded) & (uint)(0xffff0000));
}

// The floats of integers of 8 bits. csrc/codegen/instructions.cpp has faster ones.
OCL_INLINE float op_u8_value(uchar x) {
  return convert_float(x);
}

OCL_INLINE float op_i8_value(char x) {
  return convert_float(x);
}

OCL_INLINE float op_f16_value(ushort bits) {
  return vload_half(0, (const __private half*)&bits);
}

OCL_INLINE ushort op_f16_bits(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (__private half*)&bits);
  return bits;
}

OCL_INLINE float op_round_f16(float x) {
  return op_f16_value(op_f16_bits(x));
}

// ---- arithmetic ----

OCL_INLINE T op_abs(T x) {
  return fabs(x);
}

OCL_INLINE T op_sign(T x) {
  return x > REAL(0.0) ? REAL(1.0) : (x < REAL(0.0) ? REAL(-1.0) : REAL(0.0));
}

OCL_INLINE T op_relu(T x) {
  return x < REAL(0.0) ? REAL(0.0) : x;
}

OCL_INLINE T op_truncdiv(T a, T b) {
  return trunc(a / b);
}

// Floor division. It is computed from the exact remainder, as c10::div_floor_floating does.
OCL_INLINE T op_floordiv(T a, T b) {
  const T m = fmod(a, b);
  T q = (a - m) / b;
  q = ((m != REAL(0.0)) & ((b < REAL(0.0)) != (m < REAL(0.0)))) ? q - REAL(1.0) : q;
  T f = floor(q);
  f = q - f > REAL(0.5) ? f + REAL(1.0) : f;
  f = q == REAL(0.0) ? copysign(REAL(0.0), a / b) : f;
  return b == REAL(0.0) ? a / b : f;
}

OCL_INLINE T op_fmod(T a, T b) {
  return fmod(a, b);
}

OCL_INLINE T op_remainder(T a, T b) {
  const T m = fmod(a, b);
  return ((m != REAL(0.0)) & ((b < REAL(0.0)) != (m < REAL(0.0)))) ? m + b : m;
}

OCL_INLINE T op_pow(T x, T y) {
  return pow(x, y);
}

OCL_INLINE T op_minimum(T a, T b) {
  return (isnan(a) | (a < b)) ? a : b;
}

OCL_INLINE T op_maximum(T a, T b) {
  return (isnan(a) | (a > b)) ? a : b;
}

OCL_INLINE T op_fmin(T a, T b) {
  return fmin(a, b);
}

OCL_INLINE T op_fmax(T a, T b) {
  return fmax(a, b);
}

// ---- activations ----

OCL_INLINE T op_sigmoid(T x) {
  return REAL(1.0) / (REAL(1.0) + exp(-x));
}

OCL_INLINE T op_silu(T x) {
  return x / (REAL(1.0) + exp(-x));
}

OCL_INLINE T op_gelu_erf(T x) {
  return x * REAL(0.5) * (REAL(1.0) + erf(x * REAL(0.70710678118654752440)));
}

OCL_INLINE T op_gelu_erf_slope(T x) {
  return REAL(0.5) * (REAL(1.0) + erf(x * REAL(0.70710678118654752440))) +
         x * exp(REAL(-0.5) * x * x) * REAL(0.39894228040143267794);
}

OCL_INLINE T op_gelu_tanh(T x) {
  return REAL(0.5) * x * (REAL(1.0) + tanh(REAL(0.79788456080286535588) * (x + REAL(0.044715) * x * x * x)));
}

// (1 + tanh(u)) / 2 is sigmoid(2u), which loses no digits where tanh(u) is almost -1.
OCL_INLINE T op_gelu_tanh_slope(T x) {
  const T s = op_sigmoid(REAL(1.5957691216057308) * (x + REAL(0.044715) * x * x * x));
  return s + x * s * (REAL(1.0) - s) * (REAL(1.5957691216057308) * (REAL(1.0) + REAL(0.134145) * x * x));
}

OCL_INLINE T op_softplus(T x) {
  return fmax(x, REAL(0.0)) + log1p(exp(-fabs(x)));
}

// Returns log(exp(a) + exp(b)) without overflow. The first case is there because inf - inf is NaN.
OCL_INLINE T op_logaddexp(T a, T b) {
  return (isinf(a) & (a == b)) ? a : op_maximum(a, b) + log1p(exp(-fabs(a - b)));
}

// ---- special functions ----

// Returns erfinv(y), which is the quantile of the normal distribution at (1 + y) / 2, divided by sqrt(2). The tails use
// 1 - |y|, which is exact.
OCL_INLINE T op_erfinv(T y) {
  const T a = fabs(y), h = y * REAL(0.5), s = sqrt(REAL(-2.0) * log((REAL(1.0) - a) * REAL(0.5))), r = REAL(1.0) / s;
  const T middle = h * op_series_ndtri_middle(h * h * REAL(13.333333333333333) - REAL(1.0));
  const T close = op_series_ndtri_tail((r - REAL(0.125)) * REAL(5.3333333333333333) - REAL(1.0));
  const T far = op_series_ndtri_far_tail((r - REAL(0.025)) * REAL(20.0) - REAL(1.0));
  const T x =
      (h * h <= REAL(0.15) ? middle : copysign(s - (s <= REAL(8.0) ? close : far), y)) * REAL(0.70710678118654752440);
  const T edge = a == REAL(1.0) ? copysign((T)(INFINITY), y) : (T)(NAN);
  return a < REAL(1.0) ? x : edge;
}

// Uses the reflection formula for x < 0, the recurrence up to 10, then the asymptotic series. Source:
// ATen/native/Math.h (calc_digamma).
OCL_INLINE T op_digamma(T v) {
  const N negative = v < REAL(0.0);
  const T pi = REAL(3.14159265358979323846);
  const T fraction = v - rint(v);  // in [-1/2, 1/2], exactly: the tangent has no pole inside
  const T reflection = negative ? pi / tan(pi * fraction) : REAL(0.0);
  T x = negative ? REAL(1.0) - v : v;
  T sum = REAL(0.0);
  for (int step = 0; step < 10; ++step) {
    sum = x < REAL(10.0) ? sum - REAL(1.0) / x : sum;
    x = x < REAL(10.0) ? x + REAL(1.0) : x;
  }
  const T z = REAL(1.0) / (x * x);
  T series = REAL(8.33333333333333333333e-2);
  series = series * z + REAL(-2.10927960927960927961e-2);
  series = series * z + REAL(7.57575757575757575758e-3);
  series = series * z + REAL(-4.16666666666666666667e-3);
  series = series * z + REAL(3.96825396825396825397e-3);
  series = series * z + REAL(-8.33333333333333333333e-3);
  series = series * z + REAL(8.33333333333333333333e-2);
  const T tail = x < REAL(1.0e17) ? z * series : REAL(0.0);
  const T result = log(x) - REAL(0.5) / x - tail + sum - reflection;
  const T pole = (negative & (fraction == REAL(0.0))) ? (T)(NAN) : result;
  return v == REAL(0.0) ? copysign((T)(INFINITY), -v) : pole;
}

// ---- reductions ----

// Returns whether a value x replaces the value a as the extremum. NaN wins over all numbers. Of equal values x wins if it comes
// `before` a.
OCL_INLINE N op_argmax_wins(T x, T a, N before) {
  const N more = !(x <= a) & !isnan(a), equal = (x == a) | (isnan(x) & isnan(a));
  return more | (equal & before);
}

OCL_INLINE N op_argmin_wins(T x, T a, N before) {
  const N less = !(x >= a) & !isnan(a), equal = (x == a) | (isnan(x) & isnan(a));
  return less | (equal & before);
}

// Returns the bits of a float as an integer, with the order of negative numbers reversed. These integers compare like
// the floats.
OCL_INLINE N op_order_key(T x) {
  const N sign = as_N(REAL(-0.0)), bits = as_N(x + REAL(0.0));
  return isnan(x) ? ~sign : (bits < 0 ? bits ^ ~sign : bits);
}

// Returns the rounding error of a + b (Knuth's two-sum), and 0 if the sum is infinite or NaN.
OCL_INLINE T op_sum_error(T a, T b) {
  const T s = a + b, c = s - a;
  return isfinite(s) ? (a - (s - c)) + (b - c) : REAL(0.0);
}

// Returns the high part of (h + l) + x, where h + l is a double-float number (Knuth's two-sum). The next function
// returns the low part, which is 0 if the sum is infinite.
OCL_INLINE T op_sum_high(T h, T l, T x) {
  const T s = h + x, b = s - h, e = ((h - (s - b)) + (x - b)) + l;
  return isfinite(s) ? s + e : s;
}

OCL_INLINE T op_sum_low(T h, T l, T x) {
  const T s = h + x, b = s - h, e = ((h - (s - b)) + (x - b)) + l;
  return isfinite(s) ? e - ((s + e) - s) : REAL(0.0);
}

// Returns exp(x) for x <= 0 or nan. A subnormal result may become 0.
OCL_INLINE T op_exp_falling(T x) {
  return exp(x);
}

// Returns s * exp(m - n) + t * exp(k - n) with n = max(m, k). One of the exponentials is 1; for equal infinities both
// are 1.
OCL_INLINE T op_softmax_sum(T m, T s, T k, T t) {
  const T e = m == k ? REAL(1.0) : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

// Returns the high part of the sum that softmax_sum computes, for the double-float numbers s + l and t + u. The next
// function returns the low part.
OCL_INLINE T op_softmax_high(T m, T s, T l, T k, T t, T u) {
  const T e = m == k ? REAL(1.0) : exp(-fabs(k - m)), a = k > m ? e : REAL(1.0), b = k > m ? REAL(1.0) : e;
  return op_sum_high(s * a, l * a + u * b, t * b);
}

OCL_INLINE T op_softmax_low(T m, T s, T l, T k, T t, T u) {
  const T e = m == k ? REAL(1.0) : exp(-fabs(k - m)), a = k > m ? e : REAL(1.0), b = k > m ? REAL(1.0) : e;
  return op_sum_low(s * a, l * a + u * b, t * b);
}

// Returns the weight of b elements when they are merged with a elements.
OCL_INLINE T op_welford_ratio(T b, T a) {
  return b == REAL(0.0) ? REAL(0.0) : b / (a + b);
}

// ---- random numbers: base/philox.cl with key = seed, counter = {offset, index} ----

// Returns two of the four words of the result after ten rounds, the first one in the low half of the ulong: words 0 and
// 1 if `high` is 0, otherwise words 2 and 3.
OCL_INLINE ulong op_philox_pair(long seed, long offset, long index, long high) {
  uint k0 = convert_uint(as_ulong(seed) & (ulong)(0xffffffff)), k1 = convert_uint(as_ulong(seed) >> (ulong)(32));
  uint c0 = convert_uint(as_ulong(offset) & (ulong)(0xffffffff)), c1 = convert_uint(as_ulong(offset) >> (ulong)(32));
  uint c2 = convert_uint(as_ulong(index) & (ulong)(0xffffffff)), c3 = convert_uint(as_ulong(index) >> (ulong)(32));
  PHILOX_ROUNDS(uint, c0, c1, c2, c3, k0, k1)
  const ulong first = convert_ulong(c0) | (convert_ulong(c1) << (ulong)(32)),
              second = convert_ulong(c2) | (convert_ulong(c3) << (ulong)(32));
  return high == (long)(0) ? first : second;
}

OCL_INLINE ulong op_philox(long seed, long offset, long index) {
  return op_philox_pair(seed, offset, index, (long)(0));
}

// Returns the uniform random number of an index. Four neighbouring indices share a counter, which gives four words.
// codegen/op_library.cpp has vectors of this, which compute a counter once.
OCL_INLINE float op_philox_lane(long seed, long offset, long index) {
  const ulong words = op_philox_pair(seed, offset, index >> (long)(2), index & (long)(2));
  const ulong word = (index & (long)(1)) == (long)(0) ? words & (ulong)(0xffffffff) : words >> (ulong)(32);
  return convert_float(convert_uint(word) >> (uint)(8)) * (float)(0x1p-24f);
}

// Returns a normal random number by Box and Muller's method. 1 - u0 keeps the logarithm's argument above zero.
OCL_INLINE float op_philox_normal(long seed, long offset, long index) {
  const ulong words = op_philox(seed, offset, index);
  const float u0 = convert_float(convert_uint(words & (ulong)(0xffffffff)) >> (uint)(8)) * (float)(0x1p-24f);
  const float u1 = convert_float(convert_uint(words >> (ulong)(32)) >> (uint)(8)) * (float)(0x1p-24f);
  return sqrt((float)(-2.0f) * log((float)(1.0f) - u0)) * cos((float)(6.283185307179586f) * u1);
}

OCL_INLINE long op_philox_bits(long seed, long offset, long index) {
  return as_long(op_philox(seed, offset, index));
}

// ---- integer types ----
#ifdef OCL_OPS_ALONE
#undef T
#undef as_T
#undef convert_T
#define T int
#define as_T as_int
#define convert_T convert_int
#endif

// Index arithmetic: floor division and modulo for a divisor > 0.
OCL_INLINE T opi_index_floordiv(T a, T b) {
  return (a < (T)(0) ? a - (b - (T)(1)) : a) / b;
}

OCL_INLINE T opi_index_mod(T a, T b) {
  const T r = a % b;
  return r < (T)(0) ? r + b : r;
}

// Sum, difference and product modulo 2^bits, as in PyTorch. For a scalar that is smaller than int, U would not do: C
// multiplies two ushort as int.
OCL_INLINE T opi_add(T a, T b) {
  return convert_T(convert_W(a) + convert_W(b));
}

OCL_INLINE T opi_sub(T a, T b) {
  return convert_T(convert_W(a) - convert_W(b));
}

OCL_INLINE T opi_mul(T a, T b) {
  return convert_T(convert_W(a) * convert_W(b));
}

// The least integer stays negative. Some compilers take `x < 0 ? -x : x`, abs(x) and abs_diff(x, 0) for numbers of at least 0.
OCL_INLINE T opi_abs(T x) {
  const T all_bits = x < (T)(0) ? (T)(-1) : (T)(0);
  return opi_sub(x ^ all_bits, all_bits);
}

OCL_INLINE T opi_sign(T x) {
  return x > (T)(0) ? (T)(1) : (x < (T)(0) ? (T)(-1) : (T)(0));
}

OCL_INLINE T opi_relu(T x) {
  return x < (T)(0) ? (T)(0) : x;
}

// Division by 0 gives 0. The divisors 0 and -1 never reach the machine's division, because -1 overflows for the least
// integer.
OCL_INLINE T opi_truncdiv(T a, T b) {
  const T safe = ((b == (T)(0)) | ((b == (T)(-1)) & (b < (T)(0)))) ? (T)(1) : b;
  const T q = a / safe;
  return b == (T)(0) ? (T)(0) : (((b == (T)(-1)) & (b < (T)(0))) ? opi_sub((T)(0), a) : q);
}

OCL_INLINE T opi_floordiv(T a, T b) {
  const T q = opi_truncdiv(a, b);
  const T r = opi_sub(a, opi_mul(q, b));
  return ((b != (T)(0)) & (r != (T)(0)) & ((r < (T)(0)) != (b < (T)(0)))) ? opi_sub(q, (T)(1)) : q;
}

OCL_INLINE T opi_fmod(T a, T b) {
  return b == (T)(0) ? (T)(0) : opi_sub(a, opi_mul(opi_truncdiv(a, b), b));
}

OCL_INLINE T opi_remainder(T a, T b) {
  const T r = opi_fmod(a, b);
  return ((r != (T)(0)) & ((r < (T)(0)) != (b < (T)(0)))) ? opi_add(r, b) : r;
}

// Computes the power by squaring, with wrap-around. A negative exponent gives 1 or -1 for the bases 1 and -1, else 0.
OCL_INLINE T opi_pow(T x, T y) {
  T result = (T)(1), square = x, left = y < (T)(0) ? (T)(0) : y;
  for (int bit = 0; bit < 63; ++bit) {
    result = (left & (T)(1)) != (T)(0) ? opi_mul(result, square) : result;
    square = opi_mul(square, square);
    left = left >> (T)(1);
  }
  const T odd = (T)(y & (T)(1));
  const T inverse = x == (T)(1) ? (T)(1) : (x == (T)(-1) ? (odd != (T)(0) ? (T)(-1) : (T)(1)) : (T)(0));
  return y < (T)(0) ? inverse : result;
}

// Euclid's algorithm. Neighbours in the Fibonacci sequence take the most steps: fewer than 92 for 64 bits.
OCL_INLINE T opi_gcd(T a, T b) {
  T x = opi_abs(a), y = opi_abs(b);
  for (int step = 0; step < 92; ++step) {
    const T rest = opi_fmod(x, y);
    x = y == (T)(0) ? x : y;
    y = rest;
  }
  return x;
}

OCL_INLINE T opi_minimum(T a, T b) {
  return min(a, b);
}

OCL_INLINE T opi_maximum(T a, T b) {
  return max(a, b);
}

OCL_INLINE T opi_fmin(T a, T b) {
  return min(a, b);
}

OCL_INLINE T opi_fmax(T a, T b) {
  return max(a, b);
}

// Shifts outside 0 .. width-1 move every bit out.
OCL_INLINE T opi_shl(T a, T b) {
  const T width = (T)(sizeof(a) / OCL_LANES * 8);
  return ((b < (T)(0)) | (b >= width)) ? (T)(0) : convert_T(convert_W(a) << convert_W(b & (T)(width - (T)(1))));
}

OCL_INLINE T opi_shr(T a, T b) {
  const T width = (T)(sizeof(a) / OCL_LANES * 8);
  const T out = a < (T)(0) ? (T)(-1) : (T)(0);
  return ((b < (T)(0)) | (b >= width)) ? out : (T)(a >> (b & (T)(width - (T)(1))));
}

OCL_INLINE N opi_argmax_wins(T x, T a, N before) {
  return (x > a) | ((x == a) & before);
}

OCL_INLINE N opi_argmin_wins(T x, T a, N before) {
  return (x < a) | ((x == a) & before);
}
