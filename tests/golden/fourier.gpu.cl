// fft, groups 1 x 1 x 1, local [480, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME fft_f6046815ad0c
#define VW 2
#define STEPS(S) S(5, 1) S(3, 5) S(2, 15) 
#define LINES 32
#define ITEMS 480
#define POINTS 5
#define PADDED 1
#define COLUMNS_IN 0
#define COLUMNS_OUT 0
#define N 30
#define INPUT 1
#define SCALE 0.5f
// kernels/base/types.cl: types, hints, loads and stores shared by all kernels; comes before any other file of a program
// text. OpenCL C 1.2.
#ifndef OCL_COMMON_CL
#define OCL_COMMON_CL

// ---- hints ----
#ifndef OCL_UNROLL  // put before a loop with constant bounds: unroll it fully
#if defined(__clang__) || defined(OCL_HAS_UNROLL_HINT)
#define OCL_UNROLL __attribute__((opencl_unroll_hint))
#else
#define OCL_UNROLL
#endif
#endif
#ifndef OCL_NO_UNROLL  // put before a loop with few, constant trips whose body is long: keep one copy
#if defined(__clang__) || defined(OCL_HAS_UNROLL_HINT)
#define OCL_NO_UNROLL __attribute__((opencl_unroll_hint(1)))
#else
#define OCL_NO_UNROLL
#endif
#endif
#ifndef OCL_INLINE  // every helper function of a kernel file
#define OCL_INLINE static inline
#endif
#ifndef OCL_NOINLINE  // a rare path, kept out of the caller so that it costs the caller no registers
#define OCL_NOINLINE static __attribute__((noinline))
#endif
// Item kernels have one work-item per work-group and explicit vectors. Without this hint Intel's runtime also builds a
// version that runs 16 work-items at once, which nothing uses. The build then takes ten times as long if a tile has
// many accumulators.
#ifndef ONE_ITEM
#define ONE_ITEM __attribute__((reqd_work_group_size(1, 1, 1))) __attribute__((vec_type_hint(float4)))
#endif

// ---- types ----
#define OCL_CAT_(a, b) a##b
#define OCL_CAT(a, b) OCL_CAT_(a, b)
#ifndef VW
#define VW 16  // floats in a vector: 16 (AVX-512), 8 (AVX2), 4 (NEON, SSE, GPUs)
#endif
#define VEC OCL_CAT(float, VW)  // float16, float8 or float4
#define VEC_UINT OCL_CAT(uint, VW)
typedef float4 V4;
typedef float8 V8;
typedef float16 V16;

// Storage type of the inputs: float, fp16 with IN_HALF, or bf16 (the upper 16 bits of a float) with IN_BF16. Arithmetic
// is always in float.
#ifndef IN_T
#if defined(IN_HALF)
#define IN_T half
#elif defined(IN_BF16)
#define IN_T ushort
#else
#define IN_T float
#endif
#endif

// ---- load ---- p: pointer to storage in any address space, i: index in elements. p need only be aligned to an
// element.
#if defined(IN_HALF)
#define LOAD(p, i) vload_half((size_t)0, (p) + (i))
#define LOADV(p, i) OCL_CAT(vload_half, VW)((size_t)0, (p) + (i))
#elif defined(IN_BF16)
#define LOAD(p, i) as_float((uint)(p)[i] << 16)
#define LOADV(p, i) OCL_CAT(as_float, VW)(OCL_CAT(convert_uint, VW)(OCL_CAT(vload, VW)((size_t)0, (p) + (i))) << 16)
#else
#define LOAD(p, i) ((p)[i])
#define LOADV(p, i) OCL_CAT(vload, VW)((size_t)0, (p) + (i))
#endif
#define VLOAD(p) OCL_CAT(vload, VW)((size_t)0, (p))  // VW floats from any float pointer

// ---- store ----
#define VSTORE(v, p) OCL_CAT(vstore, VW)((v), (size_t)0, (p))  // VW floats to any float pointer

// ---- prefetch ---- CPUs only
#ifndef PREFETCHES
#define PREFETCHES 0  // 1: the device has an instruction that asks for a cache line
#endif
// Prefetches the cache line at p, which may lie outside a buffer. OpenCL's own prefetch is a function call on Intel's
// runtime. The cast is valid because a CPU has one address space.
#if PREFETCHES && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define PREFETCH(p) __builtin_prefetch((__private const void*)(size_t)(p))
#define PREFETCH_TO_WRITE(p) __builtin_prefetch((__private const void*)(size_t)(p), 1)
#endif
#endif
#ifndef PREFETCH
#define PREFETCH(p)
#define PREFETCH_TO_WRITE(p)
#endif

// ---- group kernels: one work-group = one tile of the output, operands staged in local memory ----
//
// A staged tile is [depth][width + TILE_PAD] floats. The multiply loop reads float4 along the width for one depth at a
// time. All "const int" parameters below are compile-time constants at the call. So every loop unrolls, and every index
// of a private array is constant.

// Depths of a staged tile that tile_multiply takes without a branch between them. Some compilers first load the operands
// of all of them: 12 registers for each depth of an item's block of 8 x 4.
#ifndef MULTIPLY_DEPTH
#define MULTIPLY_DEPTH 16
#endif
#if MULTIPLY_DEPTH < 16 && (defined(__clang__) || defined(OCL_HAS_UNROLL_HINT))
#define UNROLL_MULTIPLY __attribute__((opencl_unroll_hint(MULTIPLY_DEPTH)))
#else
#define UNROLL_MULTIPLY OCL_UNROLL
#endif

// An attribute of each group kernel. THREAD_ITEMS: if defined, the work-items of a thread.
#ifdef THREAD_ITEMS
#define THREAD_SIZE __attribute__((intel_reqd_sub_group_size(THREAD_ITEMS)))
#else
#define THREAD_SIZE
#endif

#define TILE_PAD 4  // floats; with it, a store that transposes (depth contiguous in memory) goes to different banks

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// Returns four neighbouring elements. aligned: 1 if their address is a multiple of four elements, in the whole launch.
// Then this is one load; compilers make four loads of a vload4. Strides are known when the kernel is built, but where
// an input tensor begins is known only at run time: ALIGNED(offset) tests it. The test costs 5 to 10 percent on an
// H200. ALIGNED_BASES 1 removes it where the plan itself places the operands.
#ifndef ALIGNED_BASES
#define ALIGNED_BASES 0  // 1: all operands read as float4 begin at multiples of four elements
#endif
#define ALIGNED(offset) (ALIGNED_BASES || (offset) % 4 == 0)
ALWAYS_INLINE float4 load4(__global const IN_T* p, const int aligned) {
#if !defined(IN_HALF) && !defined(IN_BF16)
  if (aligned) return *(__global const float4*)p;
#endif
  return (float4)(LOAD(p, 0), LOAD(p, 1), LOAD(p, 2), LOAD(p, 3));
}

// Returns the position (x, y) of a work-item in a work-group that is `across` work-items wide and `down` high. If it
// fits, 32 neighbouring work-items form a patch 8 wide and 4 high. They then read 8 + 4 different float4 of the staged
// tiles instead of 16 + 2.
ALWAYS_INLINE int2 tile_item(const int lane, const int across, const int down) {
  if (across % 8 == 0 && down % 4 == 0)
    return (int2)((lane & 7) + 8 * ((lane >> 5) % (across / 8)), ((lane >> 3) & 3) + 4 * ((lane >> 5) / (across / 8)));
  return (int2)(lane % across, lane / across);
}

// Loads this work-item's share of width x depth elements of a matrix into `held`, zeros outside (width_left,
// depth_left). items: number of work-items. along_depth: 1 if the depth is contiguous. quads: 1 to read the contiguous
// dimension by load4; its extent is then a multiple of 4. `across` work-items take the contiguous dimension, and items is
// a multiple of it: so all loads of a work-item have the same place in this dimension, and their addresses differ by a
// multiple of `next`, which is the same for all work-items. An address for each load would take two registers each.
ALWAYS_INLINE void tile_fetch(float4* held, __global const IN_T* p, const long width_stride, const long depth_stride,
                              const int width_left, const int depth_left, const int lane, const int items,
                              const int width, const int depth, const int along_depth, const int quads,
                              const int aligned) {
  const int part_of = quads ? 4 : 1, across = (along_depth ? depth : width) / part_of;
  const int w0 = along_depth ? lane / across : lane % across * part_of;
  const int d0 = along_depth ? lane % across * part_of : lane / across;
  const long next = (along_depth ? width_stride : depth_stride) * (items / across);
  const int all = width * depth / 4 % items == 0;  // no work-item is left over
  p += w0 * width_stride + d0 * depth_stride;
  OCL_UNROLL
  for (int i = 0; i < (width * depth / 4 + items - 1) / items; ++i) {
    float part[4];
    held[i] = (float4)(0.0f);
    OCL_UNROLL
    for (int j = 0; j < 4 / part_of; ++j) {
      const int step = (i * 4 / part_of + j) * (items / across);
      const int w = along_depth ? w0 + step : w0, d = along_depth ? d0 : d0 + step;
      const int inside = w < width_left && d < depth_left && (all || (along_depth ? w < width : d < depth));
      if (quads) {
        if (inside) held[i] = load4(p + (i * 4 / part_of + j) * next, aligned);
      } else {
        part[j] = 0.0f;
        if (inside) part[j] = LOAD(p, (i * 4 + j) * next);
      }
    }
    if (!quads) held[i] = (float4)(part[0], part[1], part[2], part[3]);
  }
}

// Stores what tile_fetch has loaded in a staged tile.
ALWAYS_INLINE void tile_keep(__local float* tile, const float4* held, const int lane, const int items, const int width,
                             const int depth, const int along_depth, const int quads) {
  const int row = width + TILE_PAD;
  OCL_UNROLL
  for (int i = 0; i < (width * depth / 4 + items - 1) / items; ++i) {
    if (quads) {
      const int e = lane + i * items;
      if (width * depth / 4 % items == 0 || e < width * depth / 4) {
        if (along_depth) {
          __local float* t = tile + e % (depth / 4) * 4 * row + e / (depth / 4);
          t[0] = held[i].x;
          t[row] = held[i].y;
          t[2 * row] = held[i].z;
          t[3 * row] = held[i].w;
        } else {
          *(__local float4*)(tile + e / (width / 4) * row + e % (width / 4) * 4) = held[i];
        }
      }
    } else {
      const float part[4] = {held[i].x, held[i].y, held[i].z, held[i].w};
      OCL_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int e = lane + (i * 4 + j) * items;
        if (width * depth / 4 % items == 0 || e < width * depth)
          tile[along_depth ? e % depth * row + e / depth : e / width * row + e % width] = part[j];
      }
    }
  }
}

// acc += the product of the staged tiles a and b over `depth`. The work-item owns rows i*4*down + 4*item.y + 0..3 and
// columns j*4*across + 4*item.x + 0..3 for i < item_m/4, j < item_n/4 (both 1 or 2). These are separate blocks of 4x4,
// so that neighbouring work-items read neighbouring float4.
//   acc[(i*4 + row) * (item_n/4) + j] = float4 along the columns
ALWAYS_INLINE void tile_multiply(float4* acc, __local const float* a, __local const float* b, const int2 item,
                                 const int across, const int down, const int depth, const int item_m,
                                 const int item_n) {
  UNROLL_MULTIPLY
  for (int k = 0; k < depth; ++k) {
    float4 rows[2], cols[2];
    OCL_UNROLL
    for (int i = 0; i < item_m / 4; ++i)
      rows[i] = *(__local const float4*)(a + k * (down * item_m + TILE_PAD) + (i * down + item.y) * 4);
    OCL_UNROLL
    for (int j = 0; j < item_n / 4; ++j)
      cols[j] = *(__local const float4*)(b + k * (across * item_n + TILE_PAD) + (j * across + item.x) * 4);
    OCL_UNROLL
    for (int i = 0; i < item_m / 4; ++i) {
      OCL_UNROLL
      for (int j = 0; j < item_n / 4; ++j) {
        const int at = i * item_n + j;
        acc[at] = fma((float4)(rows[i].x), cols[j], acc[at]);
        acc[at + item_n / 4] = fma((float4)(rows[i].y), cols[j], acc[at + item_n / 4]);
        acc[at + item_n / 2] = fma((float4)(rows[i].z), cols[j], acc[at + item_n / 2]);
        acc[at + item_n / 4 * 3] = fma((float4)(rows[i].w), cols[j], acc[at + item_n / 4 * 3]);
      }
    }
  }
}

// Adds acc to total and clears acc. Called every SUM_STEPS steps of a long sum, so that its rounding error is that of
// short sums.
ALWAYS_INLINE void tile_flush(float4* total, float4* acc, const int quads) {
  OCL_UNROLL
  for (int i = 0; i < quads; ++i) {
    total[i] += acc[i];
    acc[i] = (float4)(0.0f);
  }
}

// A work-item stores its sums with a loop over rows: it takes row ROW_NOW(i), and ends with tile_next_row. Where a thread has a
// set number of work-items, compilers do not unroll a loop with long stores. They would then keep the sums in memory, also
// while they are added up, because the index is not constant. So the loop stays a loop, and each row moves to the front.
#ifndef FIXED_THREADS
#ifdef THREAD_ITEMS
#define FIXED_THREADS 1
#else
#define FIXED_THREADS 0
#endif
#endif
#if FIXED_THREADS
#define OCL_UNROLL_ROWS OCL_NO_UNROLL
#define ROW_NOW(i) 0
#else
#define OCL_UNROLL_ROWS OCL_UNROLL
#define ROW_NOW(i) (i)
#endif
ALWAYS_INLINE void tile_next_row(float4* sums, const int row, const int quads) {
  OCL_UNROLL
  for (int i = row; FIXED_THREADS && i < quads; ++i) sums[i - row] = sums[i];
}

// Returns element `lane` of a vector in registers; `lane` need not be a constant.
ALWAYS_INLINE float lane_of(const float4 v, const int lane) {
  return lane == 0 ? v.x : lane == 1 ? v.y : lane == 2 ? v.z : v.w;
}

#endif  // OCL_COMMON_CL

#define EPILOGUE_PARAMS , __global float* restrict e_out0, const ulong e_out0_offset
#define EPILOGUE_PASS , e_out0, e_out0_offset
OCL_INLINE void epilogue(const float acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  e_out0[i0 * 60 + i1] = acc;
}
#define STORE(acc, i0, i1) epilogue(acc, i0, i1 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float2 acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  vstore2(acc, 0, e_out0 + i0 * 60 + i1);
}
#define STOREV(acc, i0, i1) epilogue_v(acc, i0, i1 EPILOGUE_PASS)

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
#ifndef INPUT
#define INPUT 1
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

// kernels/fft/group.cl: Fourier transforms of LINES lines of N numbers. Group kernel: one work-group = LINES lines.
//
// A work-item loads the numbers of its butterflies into registers, transforms them, and stores them in local memory for the
// next step. The first step loads from global memory; the last one stores the results. One copy of the lines in local memory is
// enough: all work-items load before one of them stores.
//
// Inputs (offsets and strides in elements of REAL):
//   x[o][k][p][q] at o*x_o + k*x_n + p*x_p + q*x_q, 0 <= p < P, 0 <= q < Q. INPUT 0: real parts in re, imaginary parts in im.
//   INPUT 1: pairs in re. INPUT 2: real numbers in re.
// Arguments: re, re_offset, im, im_offset (INPUT 0), int O, P, Q, long x_o, x_n, x_p, x_q, EPILOGUE_PARAMS.
//   Global size: (ceil(O * P * Q / LINES) * ITEMS, 1, 1), local size (ITEMS, 1, 1).
// Epilogue macros: STOREV(two numbers, o, ((k * P + p) * Q + q) * 2).
#ifndef KERNEL_NAME
#define KERNEL_NAME fft_group
#endif
#ifndef N
#define N 64
#define STEPS(S) S(8, 1) S(8, 8)  // radix, length of the transforms before the step
#endif
#ifndef LINES
#define LINES 4
#endif
#ifndef ITEMS
#define ITEMS 32  // work-items of a group
#define POINTS 8  // numbers of a work-item: the largest over the steps
#endif
#ifndef COLUMNS_IN
#define COLUMNS_IN 0  // 1: neighbouring work-items load from neighbouring lines, 0: along a line
#define COLUMNS_OUT 0  // the same for stores
#endif
#ifndef EPILOGUE_PARAMS
#define EPILOGUE_PARAMS , __global REAL *out, const long out_offset
#define EPILOGUE_PASS , out, out_offset
#define STOREV(acc, o, e) vstore2(acc, 0, out + out_offset + (o) * (long)(N * 2) * at.P * at.Q + (e))
#endif

#ifndef PADDED
#define PADDED \
  1  // 1: a gap after 16 numbers of a line, so that a step with a stride of 16 uses all banks of local memory
#endif

// The place in local memory of number k of line `line`.
#define LINE_SIZE (N + (PADDED ? N / 16 : 0))
#define PLACE(line, k) (COLUMNS_OUT ? (k) * LINES + (line) : (line) * LINE_SIZE + (k) + (PADDED ? (k) / 16 : 0))
#define NUMBERS (COLUMNS_OUT ? N * LINES : LINE_SIZE * LINES)

ALWAYS_INLINE void load_number(__global const REAL* re, __global const REAL* im, REAL* a, REAL* b) {
  const REAL x = *re;
  const REAL y = INPUT == 0 ? *im : INPUT == 1 ? re[1] : R_(0.0);
  *a = INVERSE ? y : x;
  *b = INVERSE ? x : y;
}

// Returns line and butterfly of the work-item's butterfly number i, along lines or across them.
ALWAYS_INLINE int2 butterfly_of(const int i, const int count, const int across) {
  return across ? (int2)(i % LINES, i / LINES) : (int2)(i / count, i % count);
}

// Puts the numbers of the butterfly (b, t) into re and im, and transforms them.
ALWAYS_INLINE void butterfly(REAL* re, REAL* im, const int R, const int NS, const int t) {
  if (NS > 1) {
    OCL_UNROLL
    for (int q = 1; q < R; ++q) {
      REAL c, s;
      unit_root(q * t, NS * R, &c, &s);
      turn(re + q, im + q, c, s);
    }
  }
  transform(re, im, R);
}

// Where the numbers are in memory, and which lines the work-group has: line0 and the next of `lines` in all.
typedef struct {
  long o, n, p, q;
  int P, Q, lane, line0, lines;
} Lines;

// Loads the numbers of butterfly `at` in the first step.
ALWAYS_INLINE void load_butterfly(__global const REAL* re, __global const REAL* im, const Lines at, const int line,
                                  const int first, const int R, REAL* a, REAL* b) {
  const int whole = min(at.line0 + line, at.lines - 1), each = at.P * at.Q;
  const long from = whole / each * at.o + whole % each / at.Q * at.p + whole % at.Q * at.q;
  OCL_UNROLL
  for (int q = 0; q < R; ++q) {
    const long k = from + (first + q * (N / R)) * at.n;
    load_number(re + k, im + k, a + q, b + q);
  }
}

// Stores a result of the last step.
ALWAYS_INLINE void store_number(REAL x, REAL y, const Lines at, const int line, const int k EPILOGUE_PARAMS) {
  const int each = at.P * at.Q, inner = (at.line0 + line) % each;
#if ROOT
  REAL c, s;
  unit_root(k * (inner / at.Q), ROOT, &c, &s);
  turn(&x, &y, c, s);
#endif
  x *= SCALE;
  y *= SCALE;
  STOREV((INVERSE ? (OCL_CAT(REAL, 2))(y, x) : (OCL_CAT(REAL, 2))(x, y)), (at.line0 + line) / each,
         (k * each + inner) * 2);
}

ALWAYS_INLINE void step(const int R, const int NS, __global const REAL* re, __global const REAL* im, const Lines at,
                        __local REAL* numbers EPILOGUE_PARAMS) {
  const int count = N / R, all = LINES * count, each = (all + ITEMS - 1) / ITEMS;
  const int first = NS == 1, last = NS * R == N;
  REAL a[POINTS], b[POINTS];
  OCL_UNROLL
  for (int c = 0; c < each; ++c) {
    const int i = at.lane + c * ITEMS;
    if (all % ITEMS != 0 && i >= all) continue;
    const int2 own = butterfly_of(i, count, first ? COLUMNS_IN : COLUMNS_OUT);
    if (first) load_butterfly(re, im, at, own.x, own.y, R, a + c * R, b + c * R);
    OCL_UNROLL
    for (int q = 0; !first && q < R; ++q) {
      a[c * R + q] = numbers[PLACE(own.x, own.y + q * count)];
      b[c * R + q] = numbers[NUMBERS + PLACE(own.x, own.y + q * count)];
    }
    butterfly(a + c * R, b + c * R, R, NS, own.y % NS);
  }
  if (!first && !last) barrier(CLK_LOCAL_MEM_FENCE);
  OCL_UNROLL
  for (int c = 0; c < each; ++c) {
    const int i = at.lane + c * ITEMS;
    if (all % ITEMS != 0 && i >= all) continue;
    const int2 own = butterfly_of(i, count, first ? COLUMNS_IN : COLUMNS_OUT);
    if (last && at.line0 + own.x >= at.lines) continue;
    const int k = own.y / NS * (NS * R) + own.y % NS;
    OCL_UNROLL
    for (int q = 0; q < R; ++q) {
      if (last) {
        store_number(a[c * R + q], b[c * R + q], at, own.x, k + q * NS EPILOGUE_PASS);
      } else {
        numbers[PLACE(own.x, k + q * NS)] = a[c * R + q];
        numbers[NUMBERS + PLACE(own.x, k + q * NS)] = b[c * R + q];
      }
    }
  }
  if (!last) barrier(CLK_LOCAL_MEM_FENCE);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    __global const REAL* re, const long re_offset,
#if INPUT == 0
    __global const REAL* im, const long im_offset,
#endif
    const int O, const int P, const int Q, const long x_o, const long x_n, const long x_p,
    const long x_q EPILOGUE_PARAMS) {
#if INPUT != 0
  __global const REAL* im = re;
  const long im_offset = re_offset;
#endif
  __local REAL numbers[2 * NUMBERS];
  const Lines at = {x_o, x_n, x_p, x_q, P, Q, (int)get_local_id(0), (int)get_group_id(0) * LINES, O * P * Q};
#define STEP(R, NS) step(R, NS, re + re_offset, im + im_offset, at, numbers EPILOGUE_PASS);
  STEPS(STEP)
}

// batch, groups 2 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
static inline void batch_760f6b542983_0(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)group * 2048, end = min(begin + 2048, (int)(87));
  int at = begin + (int)get_local_id(0);
  for (; at < end; at += 256) {
    const int i1 = (at % 29);
    const int i0 = (at / 29);
    const float v0 = in0[i0 * 60 - i1 * 2 + 58];
    const float v1 = in0[i0 * 60 + i1 * 2 + 2];
    const float v2 = v0 - v1;
    const float v3 = -v2;
    const int v4 = (i1 + 8) / 15;
    const long v5 = (long)v4;
    const long v6 = v5 & 2L;
    const int v7 = 0L != v6;
    const long v8 = v5 & 1L;
    const int v9 = v8 != 0L;
    const int v10 = i1 * 4 - ((i1 + 8) / 15) * 60 + 4;
    const long v11 = (long)v10;
    const float v12 = (float)v11;
    const float v13 = v12 / 60.0f;
    const float v14 = v13 * 0x1.921fb6p+0f;
    const float v15 = cos(v14);
    const float v16 = -v13;
    const float v17 = fma(v16, 60.0f, v12);
    const float v18 = v17 * 0x1.aceeap-6f;
    const float v19 = sin(v14);
    const float v20 = v18 * v19;
    const float v21 = v15 - v20;
    const float v22 = v18 * v15;
    const float v23 = v19 + v22;
    const float v24 = v9 ? v21 : v23;
    const float v25 = -v24;
    const float v26 = v7 ? v25 : v24;
    const float v27 = -v26;
    const float v28 = -v23;
    const float v29 = v9 ? v28 : v21;
    const float v30 = -v29;
    const float v31 = v7 ? v30 : v29;
    const float v32 = in0[i0 * 60 + i1 * 2 + 3];
    const float v33 = in0[i0 * 60 - i1 * 2 + 59];
    const float v34 = v32 + v33;
    const float v35 = v31 * v34;
    const float v36 = fma(v3, v27, v35);
    const float v37 = v1 + v0;
    const float v38 = v36 + v37;
    const float v39 = v31 * v2;
    const float v40 = fma(v34, v27, v39);
    const float v41 = v32 - v33;
    const float v42 = v40 + v41;
    out0[i0 * 62 + i1 * 2 + 2] = v38;
    out0[i0 * 62 + i1 * 2 + 3] = v42;
  }
}

static inline void batch_760f6b542983_1(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int count, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)group * 2048, end = min(begin + 2048, (int)(count));
  int at = begin + (int)get_local_id(0);
  for (; at < end; at += 256) {
    const int i0 = at;
    const float v0 = in0[i0 * 60];
    const float v1 = in0[i0 * 60 + 1];
    const float v2 = v0 + v1;
    const float v3 = v2 * 2.0f;
    const float v4 = v0 - v1;
    const float v5 = v4 * 2.0f;
    out0[i0 * 62] = v3;
    out0[i0 * 62 + 1] = 0.0f;
    out0[i0 * 62 + 60] = v5;
    out0[i0 * 62 + 61] = 0.0f;
  }
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void batch_760f6b542983(
    __global const float* m_in0, const ulong m_in0_offset,
    __global float* m_out0, const ulong m_out0_offset,
    const int m_end0,
    const int m_count_0) {
  const int at = get_group_id(0);
  if (at < m_end0) {
    batch_760f6b542983_0(m_in0, m_in0_offset, m_out0, m_out0_offset, at);
    return;
  }
  {
    batch_760f6b542983_1(m_in0, m_in0_offset, m_out0, m_out0_offset, m_count_0, at - m_end0);
  }
}
