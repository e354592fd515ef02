// fft, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME fft_ecff05b3f10e
#define VW 16
#define LANES 16
#define COLUMNS 0
#define STEP_IN 0
#define LINES_IN 1
#define LINES_OUT 1
#define SPLIT 0
#define COPIES 2
#define STEPS(S) S(5, 1, 0, 0) S(3, 5, 1, 0) S(2, 15, 0, 20) 
#define ROOTS 1.0f, 0.0f, 1.0f, 0.0f, 0.9135454f, 0.40673664f, 0.6691306f, 0.7431448f, 0.6691306f, 0.7431448f, -0.104528464f, 0.9945219f, 0.309017f, 0.95105654f, -0.809017f, 0.58778524f, -0.104528464f, 0.9945219f, -0.9781476f, -0.20791169f, 1.0f, 0.0f, 0.9781476f, 0.20791169f, 0.9135454f, 0.40673664f, 0.809017f, 0.58778524f, 0.6691306f, 0.7431448f, 0.5f, 0.8660254f, 0.309017f, 0.95105654f, 0.104528464f, 0.9945219f, -0.104528464f, 0.9945219f, -0.309017f, 0.95105654f, -0.5f, 0.8660254f, -0.6691306f, 0.7431448f, -0.809017f, 0.58778524f, -0.9135454f, 0.40673664f, -0.9781476f, 0.20791169f
#define RESULT 1
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

#define EPILOGUE_PARAMS , __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_PASS , e_out0, e_out0_offset, e_s0
OCL_INLINE void epilogue(const float acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  e_out0[e_s0 * i0 + i1] = acc;
}
#define STORE(acc, i0, i1) epilogue(acc, i0, i1 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float16 acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  vstore16(acc, 0, e_out0 + e_s0 * i0 + i1);
}
#define STOREV(acc, i0, i1) epilogue_v(acc, i0, i1 EPILOGUE_PASS)

// kernels/fft/lanes.cl: a vector has 8 or 16 lines, in the kernels of CPUs; comes before butterfly.cl.
#ifndef LANES
#define LANES 8
#endif

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

// kernels/fft/item.cl: Fourier transforms of lines of N numbers, LANES lines in a vector. Item kernel.
//
// A work-item copies no line: the first step loads from global memory and the last one stores there. Between steps the lines are
// in local memory, two copies of [N][re or im][LANES].
//
//   LINES_IN 1    a line is contiguous: pairs of 8 lines x 8 numbers are transposed on their way to local memory
//   LINES_OUT 1   the same for results
//   SPLIT 1       one line in all lanes: lane l has the numbers l, l + LANES, ... A last step across the lanes makes one transform
//                 of the LANES transforms, so nothing else has to be transposed. N is a multiple of LANES * LANES.
//
// Inputs (offsets and strides in elements of REAL):
//   x[o][k][p][q] at o*x_o + k*x_n + p*x_p + q*x_q, 0 <= p < P, 0 <= q < Q. INPUT 0: real parts in re, imaginary parts in im.
//   INPUT 1: pairs in re. INPUT 2: real numbers in re. A vector of lanes has neighbours along p and q (COLUMNS 1) or any lines.
// Arguments: re, re_offset, im, im_offset (INPUT 0), int O, P, Q, long x_o, x_n, x_p, x_q, blocks_per_item, EPILOGUE_PARAMS.
//   Global size: (ceil(blocks / blocks_per_item), 1, 1), local size (1, 1, 1).
// Epilogue macros: STORE(acc, o, e), STOREV(acc, o, e) with VW = 16; e = ((k * P + p) * Q + q) * 2, and 1 more for imaginary parts.
#ifndef KERNEL_NAME
#define KERNEL_NAME fft_item
#endif
#ifndef N
#define N 64
#define STEPS(S) S(8, 1, 0) S(8, 8, 1)  // radix, length of the transforms before the step, which copy it reads
#define ROOTS 1.0f  // for each step, t < NS and 0 < q < radix: w(NS * radix, q * t)
#endif
#ifndef COLUMNS
#define COLUMNS 0
#define STEP_IN 0  // COLUMNS 1: the stride between lanes; 0: lanes have strides of their own
#endif
#ifndef LINES_IN
#define LINES_IN 0
#define LINES_OUT 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef SPACE
#define SPACE __local  // __private if the copies do not fit into local memory
#endif
#ifndef COPIES
#define COPIES 2
#define RESULT 0  // the copy with the results of the last step, for LINES_OUT and SPLIT
#endif
#ifndef EPILOGUE_PARAMS
#define EPILOGUE_PARAMS , __global REAL *out, const long out_offset, const long out_line
#define EPILOGUE_PASS , out, out_offset, out_line
#define STORE(acc, o, e) (out[out_offset + (o) * out_line + (e)] = (acc))
#define STOREV(acc, o, e) vstore16(acc, 0, out + out_offset + (o) * out_line + (e))
#endif

#if SPLIT
#define M (N / LANES)  // numbers in a lane
#else
#define M N
#endif
#define ROW (2 * LANES)
#define V16 OCL_CAT(REAL, 16)
#define V8 OCL_CAT(REAL, 8)

static __constant REAL roots[] = {ROOTS};
#if SPLIT
static __constant REAL turns[] = {TURNS};  // [N / LANES / LANES][LANES][cos, sin][LANES]: w(N, l * k)
#endif

// The lines of a block. In memory, lane l begins at `from` + (COLUMNS ? l * STEP_IN : lane[l]). Lanes below `skipped` belong to
// the block before, lanes from `count` on repeat the last line.
typedef struct {
  long from, next, lane[LANES];
  int o, inner, each, skipped, count, line;
#if ROOT
  int p[LANES];
#endif
} Block;

#define INTERLEAVED(a, b)                                                                                       \
  (V16)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, \
        (b).s6, (a).s7, (b).s7)
#if LANES == 8
#define LOW(a, b) (V)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3)
#define HIGH(a, b) (V)((a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
#else
#define LOW(a, b) INTERLEAVED((a).lo, (b).lo)
#define HIGH(a, b) INTERLEAVED((a).hi, (b).hi)
#endif

// Transposes LANES vectors: rounds of interleaving row i and row i + LANES / 2.
ALWAYS_INLINE void transpose(V* rows) {
  V next[LANES];
  OCL_UNROLL
  for (int round = 1; round < LANES; round *= 2) {
    OCL_UNROLL
    for (int i = 0; i < LANES / 2; ++i) {
      next[2 * i] = LOW(rows[i], rows[i + LANES / 2]);
      next[2 * i + 1] = HIGH(rows[i], rows[i + LANES / 2]);
    }
    OCL_UNROLL
    for (int i = 0; i < LANES; ++i) rows[i] = next[i];
  }
}

#if LINES_IN || LINES_OUT  // REAL is float
#define LOW_PAIRS(a, b) (ulong8)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3)
#define HIGH_PAIRS(a, b) (ulong8)((a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
ALWAYS_INLINE void transpose_pairs(ulong8* rows) {
  ulong8 next[8];
  OCL_UNROLL
  for (int round = 0; round < 3; ++round) {
    OCL_UNROLL
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = LOW_PAIRS(rows[i], rows[i + 4]);
      next[2 * i + 1] = HIGH_PAIRS(rows[i], rows[i + 4]);
    }
    OCL_UNROLL
    for (int i = 0; i < 8; ++i) rows[i] = next[i];
  }
}
#endif

// Loads number k of all lanes.
ALWAYS_INLINE void load_lanes(__global const REAL* re, __global const REAL* im, const Block* block, const int k, V* a,
                              V* b) {
  const long at = block->from + k * block->next;
  V x, y = (V)(R_(0.0));
#if COLUMNS && STEP_IN == 2 && INPUT == 1
#if LANES == 8
  const V16 pairs = vload16(0, re + at);
  x = pairs.even, y = pairs.odd;
#else
  const V16 low = vload16(0, re + at), high = vload16(0, re + at + 16);
  x = (V)(low.even, high.even), y = (V)(low.odd, high.odd);
#endif
#elif COLUMNS && STEP_IN == 1
  x = OCL_CAT(vload, LANES)(0, re + at);
  if (INPUT == 0) y = OCL_CAT(vload, LANES)(0, im + at);
#else
  REAL parts[ROW];
  OCL_UNROLL
  for (int l = 0; l < LANES; ++l) {
    const long from = at + (COLUMNS && STEP_IN ? l * STEP_IN : block->lane[l]);
    parts[l] = re[from];
    if (INPUT == 0) parts[LANES + l] = im[from];
    if (INPUT == 1) parts[LANES + l] = re[from + 1];
  }
  x = OCL_CAT(vload, LANES)(0, parts);
  if (INPUT < 2) y = OCL_CAT(vload, LANES)(1, parts);
#endif
  *a = INVERSE ? y : x;
  *b = INVERSE ? x : y;
}

// Stores the pairs of LANES neighbouring elements from e on.
ALWAYS_INLINE void store_pairs(const V re, const V im, const int o, const int e EPILOGUE_PARAMS) {
  const V x = INVERSE ? im : re, y = INVERSE ? re : im;
#if LANES == 8
  STOREV(INTERLEAVED(x, y), o, e);
#else
  STOREV(INTERLEAVED(x.lo, y.lo), o, e);
  STOREV(INTERLEAVED(x.hi, y.hi), o, e + 16);
#endif
}

// Stores result k of the lanes of this block, one by one.
ALWAYS_INLINE void store_each(const V re, const V im, const Block* block, const int k EPILOGUE_PARAMS) {
  REAL x[LANES], y[LANES];
  OCL_CAT(vstore, LANES)(INVERSE ? im : re, 0, x);
  OCL_CAT(vstore, LANES)(INVERSE ? re : im, 0, y);
  for (int l = block->skipped; l < block->count; ++l) {
    const int line = block->line + l, o = COLUMNS ? block->o : line / block->each;
    const int e = (k * block->each + (COLUMNS ? block->inner + l : line % block->each)) * 2;
    STORE(x[l], o, e);
    STORE(y[l], o, e + 1);
  }
}

// Stores result k of all lanes.
ALWAYS_INLINE void store_lanes(V re, V im, const Block* block, const int k EPILOGUE_PARAMS) {
#if ROOT
  V c, s;
  unit_root(OCL_CAT(vload, LANES)(0, block->p) * k, ROOT, &c, &s);
  turn(&re, &im, c, s);
#endif
  re *= SCALE;
  im *= SCALE;
  if (COLUMNS && block->skipped == 0)
    store_pairs(re, im, block->o, (k * block->each + block->inner) * 2 EPILOGUE_PASS);
  else
    store_each(re, im, block, k EPILOGUE_PASS);
}

// One step of all lines of the block: see butterfly.cl. The roots are those of this step.
ALWAYS_INLINE void step(const int R, const int NS, __constant const REAL* w, SPACE const REAL* from, SPACE REAL* to,
                        __global const REAL* x_re, __global const REAL* x_im, const Block* block EPILOGUE_PARAMS) {
  const int loads = NS == 1 && !LINES_IN, stores = NS * R == M && !LINES_OUT && !SPLIT;
  for (int b = 0; b < M / (NS * R); ++b)
    for (int t = 0; t < NS; ++t) {
      V re[LARGEST_RADIX], im[LARGEST_RADIX];
      OCL_UNROLL
      for (int q = 0; q < R; ++q) {
        const int k = b * NS + t + q * (M / R);
        if (loads) {
          load_lanes(x_re, x_im, block, k, re + q, im + q);
        } else {
          re[q] = *(SPACE const V*)(from + k * ROW);
          im[q] = *(SPACE const V*)(from + k * ROW + LANES);
        }
        if (NS > 1 && q > 0) {
          __constant const REAL* root = w + (t * (R - 1) + q - 1) * 2;
          turn(re + q, im + q, (V)(root[0]), (V)(root[1]));
        }
      }
      transform(re, im, R);
      OCL_UNROLL
      for (int q = 0; q < R; ++q) {
        const int k = (b * R + q) * NS + t;
        if (stores) {
          store_lanes(re[q], im[q], block, k EPILOGUE_PASS);
        } else {
          *(SPACE V*)(to + k * ROW) = re[q];
          *(SPACE V*)(to + k * ROW + LANES) = im[q];
        }
      }
    }
}

#if LINES_IN
// Copies the lines to local memory, transposed.
ALWAYS_INLINE void load_lines(__global const REAL* re, const Block* block, SPACE REAL* to) {
  for (int k = 0; k + 8 <= N; k += 8)
    for (int l = 0; l < LANES; l += 8) {
      ulong8 rows[8];
      OCL_UNROLL
      for (int i = 0; i < 8; ++i)
        rows[i] = as_ulong8(
            vload16(0, re + block->from + (COLUMNS && STEP_IN ? (l + i) * (long)STEP_IN : block->lane[l + i]) + k * 2));
      transpose_pairs(rows);
      OCL_UNROLL
      for (int i = 0; i < 8; ++i) {
        const float16 pairs = as_float16(rows[i]);
        *(SPACE V8*)(to + (k + i) * ROW + l) = INVERSE ? pairs.odd : pairs.even;
        *(SPACE V8*)(to + (k + i) * ROW + LANES + l) = INVERSE ? pairs.even : pairs.odd;
      }
    }
  for (int k = N / 8 * 8; k < N; ++k) {
    V a, b;
    load_lanes(re, re, block, k, &a, &b);
    *(SPACE V*)(to + k * ROW) = a;
    *(SPACE V*)(to + k * ROW + LANES) = b;
  }
}
#endif

#if LINES_OUT
// Stores the lines from local memory, transposed.
ALWAYS_INLINE void store_lines(SPACE const REAL* from, const Block* block EPILOGUE_PARAMS) {
  for (int k = 0; k + 8 <= N; k += 8)
    for (int l = 0; l < LANES; l += 8) {
      ulong8 rows[8];
      OCL_UNROLL
      for (int i = 0; i < 8; ++i) {
        const V8 a = *(SPACE const V8*)(from + (k + i) * ROW + l) * SCALE;
        const V8 b = *(SPACE const V8*)(from + (k + i) * ROW + LANES + l) * SCALE;
        rows[i] = as_ulong8(INVERSE ? INTERLEAVED(b, a) : INTERLEAVED(a, b));
      }
      transpose_pairs(rows);
      OCL_UNROLL
      for (int i = 0; i < 8; ++i)
        if (l + i < block->count) STOREV(as_float16(rows[i]), block->line + l + i, k * 2);
    }
  for (int k = N / 8 * 8; k < N; ++k)
    store_lanes(*(SPACE const V*)(from + k * ROW), *(SPACE const V*)(from + k * ROW + LANES), block, k EPILOGUE_PASS);
}
#endif

#if SPLIT
// The last step of a line that is split among the lanes: w(N, l * k) times result k of lane l, then transforms across the lanes.
ALWAYS_INLINE void join_lanes(SPACE const REAL* from, const Block* block EPILOGUE_PARAMS) {
  for (int k = 0; k < M; k += LANES) {
    V re[LANES], im[LANES];
    OCL_UNROLL
    for (int l = 0; l < LANES; ++l) {
      re[l] = *(SPACE const V*)(from + (k + l) * ROW);
      im[l] = *(SPACE const V*)(from + (k + l) * ROW + LANES);
    }
    transpose(re);
    transpose(im);
    OCL_UNROLL
    for (int l = 1; l < LANES; ++l) {
      __constant const REAL* root = turns + (k + l) * ROW;
      turn(re + l, im + l, OCL_CAT(vload, LANES)(0, root), OCL_CAT(vload, LANES)(1, root));
    }
    transform(re, im, LANES);
    OCL_UNROLL
    for (int l = 0; l < LANES; ++l) store_pairs(re[l] * SCALE, im[l] * SCALE, block->o, (k + l * M) * 2 EPILOGUE_PASS);
  }
}
#endif

// Returns block number i.
ALWAYS_INLINE Block block_at(const int i, const int O, const int P, const int Q, const long x_o, const long x_n,
                             const long x_p, const long x_q) {
  Block block;
  block.each = P * Q;
  block.next = x_n;
  block.skipped = 0;
  block.count = LANES;
  block.inner = block.line = 0;
#if SPLIT
  block.o = i;
  block.from = i * x_o;
  block.next = x_n * LANES;
#elif COLUMNS  // The last block ends with the last column, and repeats columns of the block before.
  const int blocks = (block.each + LANES - 1) / LANES, inner = i % blocks * LANES;
  block.o = i / blocks;
  block.inner = min(inner, block.each - LANES);
  block.skipped = inner - block.inner;
  block.from = block.o * x_o + block.inner / Q * x_p + block.inner % Q * x_q;
#else
  block.o = 0;
  block.from = 0;
  block.line = i * LANES;
  block.count = min(LANES, O * block.each - block.line);
#endif
#if !SPLIT && !(COLUMNS && STEP_IN)
  for (int l = 0; l < LANES; ++l) {
    const int line = COLUMNS ? block.inner + l : min(block.line + l, O * block.each - 1);
    block.lane[l] = (COLUMNS ? -block.from + block.o * x_o : line / block.each * x_o) + line % block.each / Q * x_p +
                    line % Q * x_q;
  }
#endif
#if ROOT
  for (int l = 0; l < LANES; ++l) block.p[l] = (COLUMNS ? block.inner + l : (block.line + l) % block.each) / Q;
#endif
  return block;
}

__kernel ONE_ITEM void KERNEL_NAME(__global const REAL* re, const long re_offset,
#if INPUT == 0
                                   __global const REAL* im, const long im_offset,
#endif
                                   const int O, const int P, const int Q, const int blocks_per_item, const long x_o,
                                   const long x_n, const long x_p, const long x_q EPILOGUE_PARAMS) {
#if INPUT != 0
  __global const REAL* im = re;
  const long im_offset = re_offset;
#endif
  SPACE REAL numbers[COPIES * M * ROW] __attribute__((aligned(64)));
  const int blocks = SPLIT ? O : COLUMNS ? O * ((P * Q + LANES - 1) / LANES) : (O * P * Q + LANES - 1) / LANES;
  const int first = (int)get_group_id(0) * blocks_per_item, end = min(first + blocks_per_item, blocks);
  for (int i = first; i < end; ++i) {
    const Block block = block_at(i, O, P, Q, x_o, x_n, x_p, x_q);
#if LINES_IN
    load_lines(re + re_offset, &block, numbers);
#endif
#define STEP(R, NS, FROM, AT)                                                                           \
  step(R, NS, roots + AT, numbers + FROM * (M * ROW), numbers + (1 - FROM) * (M * ROW), re + re_offset, \
       im + im_offset, &block EPILOGUE_PASS);
    STEPS(STEP)
#if SPLIT
    join_lanes(numbers + RESULT * (M * ROW), &block EPILOGUE_PASS);
#elif LINES_OUT
    store_lines(numbers + RESULT * (M * ROW), &block EPILOGUE_PASS);
#endif
  }
}

// batch, groups 2 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
static inline void batch_c46301954454_0(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int row_chunk, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int first = (int)group * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(3));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    for (int i1 = 0; i1 < 29; i1 += 1) {
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
}

static inline void batch_c46301954454_1(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int count, const int column_chunk, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)group * column_chunk;
  const int end = min(begin + column_chunk, (int)(count));
  for (int i0 = begin; i0 < end; i0 += 1) {
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

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void batch_c46301954454(
    __global const float* m_in0, const ulong m_in0_offset,
    __global float* m_out0, const ulong m_out0_offset,
    const int m_end0,
    const int m_row_chunk_0,
    const int m_count_0,
    const int m_column_chunk_0) {
  const int at = get_group_id(0);
  if (at < m_end0) {
    batch_c46301954454_0(m_in0, m_in0_offset, m_out0, m_out0_offset, m_row_chunk_0, at);
    return;
  }
  {
    batch_c46301954454_1(m_in0, m_in0_offset, m_out0, m_out0_offset, m_count_0, m_column_chunk_0, at - m_end0);
  }
}
