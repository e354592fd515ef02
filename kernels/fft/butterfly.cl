// kernels/fft/butterfly.cl: what the kernels of Fourier transforms share: roots of unity, and transforms of few numbers.
//
// A step of radix R takes n numbers that are transforms of length NS of the lines x[j + (n / NS) * ...], and makes transforms
// of length NS * R (Stockham's order, which needs no permutation):
//
//   v[q]  = from[b * NS + t + q * n / R] * w(NS * R, q * t)     for 0 <= t < NS, 0 <= b < n / (NS * R), 0 <= q < R
//   to[(b * R + q) * NS + t] = transform of v at q
//
// Numbers are of type V: REAL (a work-item has one line) or a vector of LANES lines. Counts of turns are of type VI.
#ifdef FFT_DOUBLE
#define REAL double
#define REAL_INT long
#define R_(x) x
#else
#define REAL float
#define REAL_INT int
#define R_(x) x##f
#endif
#ifndef ROOT
#define ROOT 0  // if not 0, results are multiplied by w(ROOT, k * p)
#endif
#ifndef SCALE
#define SCALE R_(1.0)
#endif
#ifndef LANES
#define LANES 1  // lines in a vector: 1, 8 or 16
#endif
#if LANES == 1
#define V REAL
#define VI int
#define TO_V OCL_CAT(convert_, REAL)
#define TO_MASK OCL_CAT(convert_, REAL_INT)
#else
#define V OCL_CAT(REAL, LANES)
#define VI OCL_CAT(int, LANES)
#define TO_V OCL_CAT(convert_, V)
#define TO_MASK OCL_CAT(convert_, OCL_CAT(REAL_INT, LANES))
#endif
#ifndef LARGEST_RADIX
#define LARGEST_RADIX 16
#endif
#ifndef INVERSE
#define INVERSE 0
#endif

// Returns exp(2 pi i k / n) in (*c, *s), with an error of less than one unit in the last place. 0 <= k < n <= 2^28.
ALWAYS_INLINE void unit_root(const VI k, const int n, V* c, V* s) {
  const VI quarter =
      (k * 8 + n) / (2 * n);  // k / n of a turn is `quarter` quarters of a turn, and r / (4 n) of a turn.
  const V r = TO_V(k * 4 - quarter * n);
  const V f = r * (R_(1.0) / (REAL)n);
  const V lost =
      fma(-f, (V)((REAL)n), r) * (R_(1.0) / (REAL)n) * R_(1.5707963267948966);  // The angle is f * pi / 2 + lost.
  const V g = f * f;
#ifdef FFT_DOUBLE
  V a = (V)(6.0669357311061957e-12);
  a = fma(a, g, (V)(-6.6880351098114673e-10));
  a = fma(a, g, (V)(5.6921729219679268e-08));
  a = fma(a, g, (V)(-3.5988432352120854e-06));
  a = fma(a, g, (V)(1.6044118478735982e-04));
  a = fma(a, g, (V)(-4.6817541353186881e-03));
  a = fma(a, g, (V)(7.9692626246167046e-02));
  a = fma(a, g, (V)(-6.4596409750624625e-01));
  const V sine = fma(f, (V)(1.5707963267948966), f * fma(a, g, (V)(6.1232339957367660e-17)));
  V b = (V)(6.5659631149794723e-11);
  b = fma(b, g, (V)(-6.3866030837918522e-09));
  b = fma(b, g, (V)(4.7108747788181715e-07));
  b = fma(b, g, (V)(-2.5202042373060605e-05));
  b = fma(b, g, (V)(9.1926027483942659e-04));
  b = fma(b, g, (V)(-2.0863480763352961e-02));
  b = fma(b, g, (V)(2.5366950790104802e-01));
  b = fma(b, g, (V)(-1.2337005501361697e+00));
  const V cosine = fma(b, g, (V)(1.0));
#else
  V a = (V)(1.6044118478735982e-04f);
  a = fma(a, g, (V)(-4.6817541353186881e-03f));
  a = fma(a, g, (V)(7.9692626246167046e-02f));
  a = fma(a, g, (V)(-6.4596409750624625e-01f));
  const V sine = fma(f, (V)(1.57079637f), f * fma(a, g, (V)(-4.37113883e-08f)));
  V b = (V)(-2.5202042373060605e-05f);
  b = fma(b, g, (V)(9.1926027483942659e-04f));
  b = fma(b, g, (V)(-2.0863480763352961e-02f));
  b = fma(b, g, (V)(2.5366950790104802e-01f));
  b = fma(b, g, (V)(-1.2337005501361697e+00f));
  const V cosine = fma(b, g, (V)(1.0f));
#endif
  const V sine_of = fma(lost, cosine, sine), cosine_of = fma(-lost, sine, cosine);
  // A quarter of a turn maps (c, s) to (-s, c).
  const V turned_c = select(cosine_of, -sine_of, TO_MASK(-(quarter & 1))),
          turned_s = select(sine_of, cosine_of, TO_MASK(-(quarter & 1)));
  *c = select(turned_c, -turned_c, TO_MASK(-((quarter >> 1) & 1)));
  *s = select(turned_s, -turned_s, TO_MASK(-((quarter >> 1) & 1)));
}

// (re, im) *= c - i s. Kernels of the inverse transform exchange real and imaginary parts of input and output instead.
ALWAYS_INLINE void turn(V* re, V* im, const V c, const V s) {
  const V x = *re;
  *re = fma(*im, s, x * c);
  *im = fma(-x, s, *im * c);
}

ALWAYS_INLINE void sum_and_difference(V* re, V* im, const int a, const int b) {
  const V x = re[a], y = im[a];
  re[a] = x + re[b];
  im[a] = y + im[b];
  re[b] = x - re[b];
  im[b] = y - im[b];
}

// Transforms the numbers at a, b, c, d; results are at the same places, in order.
ALWAYS_INLINE void transform4(V* re, V* im, const int a, const int b, const int c, const int d) {
  sum_and_difference(re, im, a, c);
  sum_and_difference(re, im, b, d);
  sum_and_difference(re, im, a, b);
  const V x = re[b], y = im[b], u = re[c], v = im[c], s = re[d], t = im[d];
  re[b] = u + t;
  im[b] = v - s;
  re[c] = x;
  im[c] = y;
  re[d] = u - t;
  im[d] = v + s;
}

ALWAYS_INLINE void transform8(V* re, V* im) {
  const REAL h = R_(0.70710678118654752);
  transform4(re, im, 0, 2, 4, 6);
  transform4(re, im, 1, 3, 5, 7);
  V x = re[3], y = im[3];
  re[3] = (x + y) * h;
  im[3] = (y - x) * h;
  x = re[5];
  re[5] = im[5];
  im[5] = -x;
  x = re[7], y = im[7];
  re[7] = (y - x) * h;
  im[7] = (x + y) * -h;
  // Even and odd results alternate: 0 1 | 2 3 | 4 5 | 6 7 become 0, 1, 2, 3 and 4, 5, 6, 7.
  V a[8], b[8];
  OCL_UNROLL
  for (int k = 0; k < 4; ++k) {
    a[k] = re[2 * k] + re[2 * k + 1], b[k] = im[2 * k] + im[2 * k + 1];
    a[k + 4] = re[2 * k] - re[2 * k + 1], b[k + 4] = im[2 * k] - im[2 * k + 1];
  }
  OCL_UNROLL
  for (int k = 0; k < 8; ++k) re[k] = a[k], im[k] = b[k];
}

// Four transforms of every fourth number, then four across them.
ALWAYS_INLINE void transform16(V* re, V* im) {
  const REAL c1 = R_(0.92387953251128676), s1 = R_(0.38268343236508977), h = R_(0.70710678118654752);
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) transform4(re, im, i, i + 4, i + 8, i + 12);
  turn(re + 5, im + 5, (V)(c1), (V)(s1));
  turn(re + 6, im + 6, (V)(h), (V)(h));
  turn(re + 7, im + 7, (V)(s1), (V)(c1));
  turn(re + 9, im + 9, (V)(h), (V)(h));
  const V x = re[10];
  re[10] = im[10];
  im[10] = -x;
  turn(re + 11, im + 11, (V)(-h), (V)(h));
  turn(re + 13, im + 13, (V)(s1), (V)(c1));
  turn(re + 14, im + 14, (V)(-h), (V)(h));
  turn(re + 15, im + 15, (V)(-c1), (V)(-s1));
  V a[16], b[16];
  OCL_UNROLL
  for (int k = 0; k < 4; ++k) {
    transform4(re, im, 4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3);
    OCL_UNROLL
    for (int m = 0; m < 4; ++m) a[k + 4 * m] = re[4 * k + m], b[k + 4 * m] = im[4 * k + m];
  }
  OCL_UNROLL
  for (int k = 0; k < 16; ++k) re[k] = a[k], im[k] = b[k];
}

// cos and sin of 2 pi k / R for constants R and k <= R / 2. There is no table, because Intel's compiler for GPUs makes a kernel of it.
#define COSINE3(k) (R_(-0.5))
#define SINE3(k) (R_(0.866025403784438647))
#define COSINE5(k) ((k) == 1 ? R_(0.309016994374947424) : R_(-0.809016994374947424))
#define SINE5(k) ((k) == 1 ? R_(0.951056516295153572) : R_(0.587785252292473129))
#define COSINE7(k) \
  ((k) == 1 ? R_(0.623489801858733531) : (k) == 2 ? R_(-0.222520933956314404) : R_(-0.900968867902419126))
#define SINE7(k) ((k) == 1 ? R_(0.781831482468029809) : (k) == 2 ? R_(0.974927912181823607) : R_(0.43388373911755812))
#define COSINE11(k)                       \
  ((k) == 1   ? R_(0.841253532831181169)  \
   : (k) == 2 ? R_(0.415415013001886426)  \
   : (k) == 3 ? R_(-0.14231483827328514)  \
   : (k) == 4 ? R_(-0.654860733945285064) \
              : R_(-0.95949297361449739))
#define SINE11(k)                        \
  ((k) == 1   ? R_(0.540640817455597582) \
   : (k) == 2 ? R_(0.909631995354518371) \
   : (k) == 3 ? R_(0.989821441880932732) \
   : (k) == 4 ? R_(0.755749574354258284) \
              : R_(0.281732556841429698))
#define COSINE13(k)                       \
  ((k) == 1   ? R_(0.885456025653209896)  \
   : (k) == 2 ? R_(0.568064746731155803)  \
   : (k) == 3 ? R_(0.120536680255323053)  \
   : (k) == 4 ? R_(-0.354604887042535626) \
   : (k) == 5 ? R_(-0.748510748171101099) \
              : R_(-0.970941817426052027))
#define SINE13(k)                        \
  ((k) == 1   ? R_(0.464723172043768546) \
   : (k) == 2 ? R_(0.822983865893656395) \
   : (k) == 3 ? R_(0.992708874098053993) \
   : (k) == 4 ? R_(0.935016242685414823) \
   : (k) == 5 ? R_(0.663122658240795202) \
              : R_(0.239315664287557767))
ALWAYS_INLINE REAL cosine(const int R, const int k) {
  return R == 3 ? COSINE3(k) : R == 5 ? COSINE5(k) : R == 7 ? COSINE7(k) : R == 11 ? COSINE11(k) : COSINE13(k);
}
ALWAYS_INLINE REAL sine(const int R, const int k) {
  return R == 3 ? SINE3(k) : R == 5 ? SINE5(k) : R == 7 ? SINE7(k) : R == 11 ? SINE11(k) : SINE13(k);
}

// Transforms R numbers, R odd, by the sums and differences of the numbers j and R - j.
ALWAYS_INLINE void transform_odd(V* re, V* im, const int R) {
  V sum_re[7], sum_im[7], dif_re[7], dif_im[7];
  const V x = re[0], y = im[0];
  OCL_UNROLL
  for (int j = 1; j <= R / 2; ++j) {
    sum_re[j] = re[j] + re[R - j], sum_im[j] = im[j] + im[R - j];
    dif_re[j] = re[j] - re[R - j], dif_im[j] = im[j] - im[R - j];
    re[0] += sum_re[j];
    im[0] += sum_im[j];
  }
  OCL_UNROLL
  for (int k = 1; k <= R / 2; ++k) {
    V even_re = x, even_im = y, odd_re = (V)(R_(0.0)), odd_im = (V)(R_(0.0));
    OCL_UNROLL
    for (int j = 1; j <= R / 2; ++j) {
      const int turns = j * k % R, least = min(turns, R - turns);
      const V c = (V)(cosine(R, least)), s = (V)(least == turns ? sine(R, least) : -sine(R, least));
      even_re = fma(sum_re[j], c, even_re), even_im = fma(sum_im[j], c, even_im);
      odd_re = fma(dif_re[j], s, odd_re), odd_im = fma(dif_im[j], s, odd_im);
    }
    re[k] = even_re + odd_im, im[k] = even_im - odd_re;
    re[R - k] = even_re - odd_im, im[R - k] = even_im + odd_re;
  }
}

#if LARGEST_RADIX > 16
// The same for a larger prime, with a loop instead of R * R instructions. Sums of 8 products keep the rounding errors small.
OCL_NOINLINE void transform_prime(V* re, V* im, const int R) {
  V c[LARGEST_RADIX], s[LARGEST_RADIX], x[LARGEST_RADIX], y[LARGEST_RADIX];
  V total_re = re[0], total_im = im[0];
  for (int j = 1; j < R; ++j) {
    unit_root((VI)(j), R, c + j, s + j);
    total_re += re[j];
    total_im += im[j];
  }
  for (int j = 1; j <= R / 2; ++j) {
    x[j] = re[j] + re[R - j], y[j] = im[j] + im[R - j];
    x[R - j] = re[j] - re[R - j], y[R - j] = im[j] - im[R - j];
  }
  for (int k = 1; k <= R / 2; ++k) {
    V even_re = re[0], even_im = im[0], odd_re = (V)(R_(0.0)), odd_im = (V)(R_(0.0));
    for (int first = 1; first <= R / 2; first += 8) {
      V a = (V)(R_(0.0)), b = (V)(R_(0.0)), u = (V)(R_(0.0)), v = (V)(R_(0.0));
      for (int j = first; j < first + 8 && j <= R / 2; ++j) {
        const int turns = j * k % R;
        a = fma(x[j], c[turns], a), b = fma(y[j], c[turns], b);
        u = fma(x[R - j], s[turns], u), v = fma(y[R - j], s[turns], v);
      }
      even_re += a, even_im += b;
      odd_re += u, odd_im += v;
    }
    re[k] = even_re + odd_im, im[k] = even_im - odd_re;
    re[R - k] = even_re - odd_im, im[R - k] = even_im + odd_re;
  }
  re[0] = total_re;
  im[0] = total_im;
}
#endif

// Transforms R numbers in place. R is a constant: 2, 4, 8, 16 or a prime.
ALWAYS_INLINE void transform(V* re, V* im, const int R) {
  if (R == 2) sum_and_difference(re, im, 0, 1);
  if (R == 3) transform_odd(re, im, 3);
  if (R == 4) transform4(re, im, 0, 1, 2, 3);
  if (R == 5) transform_odd(re, im, 5);
  if (R == 7) transform_odd(re, im, 7);
  if (R == 8) transform8(re, im);
  if (R == 11) transform_odd(re, im, 11);
  if (R == 13) transform_odd(re, im, 13);
  if (R == 16) transform16(re, im);
#if LARGEST_RADIX > 16
  if (R > 16) transform_prime(re, im, R);
#endif
}
