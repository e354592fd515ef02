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
// Where a load has a condition, load as QUAD and convert behind it. Otherwise compilers branch around both, and each load waits
// for the one before.
#if defined(IN_HALF) || defined(IN_BF16)
typedef uint2 QUAD;
#else
typedef float4 QUAD;
#endif
ALWAYS_INLINE float4 floats_of(const QUAD bits) {
#if defined(IN_HALF)
  const ushort4 halves = as_ushort4(bits);
  return vload_half4((size_t)0, (const __private half*)&halves);
#elif defined(IN_BF16)
  return as_float4((uint4)(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16, bits.y & 0xffff0000u));
#else
  return bits;
#endif
}
ALWAYS_INLINE float4 load4(__global const IN_T* p, const int aligned) {
  if (aligned) return floats_of(*(__global const QUAD*)p);
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
