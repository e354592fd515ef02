// pack, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME pack_c7bfe42a0773
#define VW 16
#define TN 64
#define K_RUN 128
#define B_LAYOUT 1
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
OCL_INLINE void epilogue(const float acc, const int i0, const int i1, const int i2, const int i3 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  e_out0[e_s0 * i2 + i3] = acc;
}
#define STORE(acc, i0, i1, i2, i3) epilogue(acc, i0, i1, i2, i3 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float16 acc, const int i0, const int i1, const int i2, const int i3 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  vstore16(acc, 0, e_out0 + e_s0 * i2 + i3);
}
#define STOREV(acc, i0, i1, i2, i3) epilogue_v(acc, i0, i1, i2, i3 EPILOGUE_PASS)

// kernels/pack/item.cl: packs a matrix into panels of TN columns, as gemm/item.cl reads them: P[b][j][k][c] =
// B[b][k][j*TN + c], zero from column N on. Item kernel: one work-item = K_RUN rows of one panel.
//
//      B  n ->   j*TN     (j+1)*TN            P  panel j: K rows of TN floats, one after the other
//    k  +---------+----------+---+
//    |  |         |work-item |   |            B_LAYOUT 1 (a Linear weight, [N][K]): VW x VW blocks are transposed in
//    v  |         |          |   |            registers, so each cache line is read and written once
//       +---------+----------+---+
// Inputs (strides in elements of IN_T): B[b][k][n] is at b_batch(b) + k*b_row + n with B_LAYOUT 0, at b_batch(b) + k +
//   n*b_col with 1, at b_batch(b) + k*b_row + n*b_col with 2. b_batch(b) = (b / inner)*b_outer + (b % inner)*b_inner.
// Arguments: b, b_offset, int N, K, inner, long b_outer, b_inner, int b_row, b_col, EPILOGUE_PARAMS
// Global size: (ceil(N / TN), ceil(K / K_RUN), batches), local size (1, 1, 1).
// Epilogue macros: STORE(value, b, j, k, c), STOREV(value, b, j, k, c); store dimension c.
#ifndef KERNEL_NAME
#define KERNEL_NAME pack_item
#endif
#ifndef TN
#define TN (4 * VW)  // columns of a panel; a multiple of VW
#endif
#ifndef K_RUN
#define K_RUN 128  // rows per work-item
#endif
#ifndef B_LAYOUT
#define B_LAYOUT 1  // see above
#endif
#ifndef STORE  // without generated epilogue macros: dense P[b][j][k][c]
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset, const int y_panels, const int y_K
#define EPILOGUE_PASS , y, y_offset, y_panels, y_K
#define PLACE(b, j, k, c) (y_offset + (((ulong)(b) * y_panels + (j)) * y_K + (k)) * TN + (c))
#define STORE(value, b, j, k, c) (y[PLACE(b, j, k, c)] = (value))
#define STOREV(value, b, j, k, c) VSTORE(value, y + PLACE(b, j, k, c))
#endif

// Transposes a VW x VW matrix in registers, x[VW], by log2(VW) rounds of INTERLEAVE.
#if VW == 16
#define FIRST_HALVES(a, b) \
  (float16)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#define LAST_HALVES(a, b) \
  (float16)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf)
#elif VW == 8
#define FIRST_HALVES(a, b) (float8)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3)
#define LAST_HALVES(a, b) (float8)(a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#else
#define FIRST_HALVES(a, b) (float4)(a.s0, b.s0, a.s1, b.s1)
#define LAST_HALVES(a, b) (float4)(a.s2, b.s2, a.s3, b.s3)
#endif
#define INTERLEAVE(from, to)                                   \
  OCL_UNROLL for (int i_ = 0; i_ < VW / 2; ++i_) {             \
    to[2 * i_] = FIRST_HALVES(from[i_], from[i_ + VW / 2]);    \
    to[2 * i_ + 1] = LAST_HALVES(from[i_], from[i_ + VW / 2]); \
  }
#if VW == 8
#define TRANSPOSE(x)    \
  {                     \
    VEC y_[VW], z_[VW]; \
    INTERLEAVE(x, y_);  \
    INTERLEAVE(y_, z_); \
    INTERLEAVE(z_, x);  \
  }
#elif VW == 16
#define TRANSPOSE(x)   \
  {                    \
    VEC y_[VW];        \
    INTERLEAVE(x, y_); \
    INTERLEAVE(y_, x); \
    INTERLEAVE(x, y_); \
    INTERLEAVE(y_, x); \
  }
#else
#define TRANSPOSE(x)   \
  {                    \
    VEC y_[VW];        \
    INTERLEAVE(x, y_); \
    INTERLEAVE(y_, x); \
  }
#endif

ONE_ITEM __kernel void KERNEL_NAME(__global const IN_T* restrict b, const ulong b_offset, const int N, const int K,
                                   const int inner, const long b_outer, const long b_inner, const int b_row,
                                   const int b_col EPILOGUE_PARAMS) {
  const int panel = get_global_id(0), first = get_global_id(1) * K_RUN, batch = get_global_id(2);
  const int last = min(first + K_RUN, K), n0 = panel * TN;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner;
#if B_LAYOUT == 0
  if (n0 + TN <= N) {  // row by row, in the order of memory
    for (int k = first; k < last; ++k) OCL_UNROLL for (int c = 0; c < TN; c += VW) {
        const VEC row = LOADV(b, (long)k * b_row + n0 + c);
        STOREV(row, batch, panel, k, c);
      }
    return;
  }
#endif
  for (int c = 0; c < TN; c += VW) {
    const int n = n0 + c, columns = clamp(N - n, 0, VW);
    int k = first;
#if B_LAYOUT == 0
    if (columns == VW)
      for (; k < last; ++k) {
        const VEC row = LOADV(b, (long)k * b_row + n);
        STOREV(row, batch, panel, k, c);
      }
#elif B_LAYOUT == 1
    if (columns == VW)
      for (; k + VW <= last; k += VW) {
        VEC block[VW];
        OCL_UNROLL for (int i = 0; i < VW; ++i) block[i] = LOADV(b, (long)(n + i) * b_col + k);
        TRANSPOSE(block);
        OCL_UNROLL for (int i = 0; i < VW; ++i) STOREV(block[i], batch, panel, k + i, c);
      }
#endif
    for (; k < last; ++k) {
      for (int i = 0; i < columns; ++i)
        STORE(LOAD(b, (long)k * (B_LAYOUT == 1 ? 1 : b_row) + (long)(n + i) * (B_LAYOUT == 0 ? 1 : b_col)), batch,
              panel, k, c + i);
      for (int i = columns; i < VW; ++i) STORE(0.f, batch, panel, k, c + i);
    }
  }
}

// gemm, groups 6 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME gemm_f576c72c5c7d
#define VW 16
#define MR 6
#define NV 4
#define MT 1
#define A_COL_MAJOR 0
#define B_IN_PLACE 0
#define WHOLE_VECTORS 1
#define PREFETCHES 1
#define PREFETCH_A 1
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

OCL_INLINE float op_relu_f32(float x) {
  return x < 0.0f ? 0.0f : x;
}

OCL_INLINE float16 op_relu_f32x16(float16 x) {
  return x < ((float16)(0.0f)) ? ((float16)(0.0f)) : x;
}

#define EPILOGUE_PARAMS , __global const float* e_in0, const ulong e_in0_offset, __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_PASS , e_in0, e_in0_offset, e_out0, e_out0_offset, e_s0
OCL_INLINE void epilogue(const float acc, const int i0, const int i1, const int i2 EPILOGUE_PARAMS) {
  e_in0 += e_in0_offset;
  e_out0 += e_out0_offset;
  const float v0 = e_in0[i2];
  const float v1 = v0 + acc;
  const float v2 = op_relu_f32(v1);
  e_out0[e_s0 * i1 + i2] = v2;
}
#define STORE(acc, i0, i1, i2) epilogue(acc, i0, i1, i2 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float16 acc, const int i0, const int i1, const int i2 EPILOGUE_PARAMS) {
  e_in0 += e_in0_offset;
  e_out0 += e_out0_offset;
  const float16 v3 = vload16(0, e_in0 + i2);
  const float16 v4 = v3 + acc;
  const float16 v5 = op_relu_f32x16(v4);
  vstore16(v5, 0, e_out0 + e_s0 * i1 + i2);
}
#define STOREV(acc, i0, i1, i2) epilogue_v(acc, i0, i1, i2 EPILOGUE_PASS)

// kernels/gemm/item.cl: C[b][m][n] = sum over k of A[b][m][k] * B[b][k][n], then the epilogue. Item kernel: one
// work-item = MT register tiles.
//
//            TN = NV*VW columns
//          +--------------------+
//   MR     | acc[0][0] .. [NV-1]|
//   rows   | ...                | x MT
//          +--------------------+
//
// acc[MR][NV] stays in vector registers. For each k, A gives MR scalars, which are broadcast, and B gives NV vectors.
// Work-item (i, j, b) owns rows [i*MT*MR, (i+1)*MT*MR) of panel j of batch b, and all of K. K is cut into blocks of
// K_BLOCK. Each block sums into new accumulators, which are then added to sums[] (private memory, 4*MT*MR*TN bytes). So
// rounding errors stay small, and the block of B (K_BLOCK*TN*4 bytes) stays in L2 while the MT tiles use it.
//
// Inputs (offsets, strides in elements of IN_T):
//   a  A_COL_MAJOR 0: A[b][m][k] at a_batch(b) + m*a_row + k            (rows in place; a_col is ignored)
//      A_COL_MAJOR 1: A[b][m][k] at a_batch(b) + m + k*a_col            (transposed A; a_row is ignored)
//      A_COL_MAJOR 2: A[b][m][k] at a_batch(b) + m*a_row + k*a_col      (any strides, slower)
//   b  B_IN_PLACE 0:  packed and padded with zeros: B[b][k][n] at b_batch(b) + ((n / PANEL)*K + k)*PANEL + n % PANEL,
//                     ceil(N/PANEL)*K*PANEL elements per batch; b_row, b_col are ignored
//      B_IN_PLACE 1:  B[b][k][n] at b_batch(b) + k*b_row + n, rows in place. The first tile of rows of a work-item
//                     packs its panel, K_BLOCK rows at a time, while it multiplies: the stores cost nothing beside the
//                     multiply-adds, and prefetching hides the latency of B.
//      B_IN_PLACE 2:  B[b][k][n] at b_batch(b) + k*b_row + n*b_col      (any strides, slower; pack/item.cl packs a
//                     Linear weight [N][K])
//      B_IN_PLACE 3:  as 1, but without a copy. Used either if there is one tile of rows (M <= MR), which would use a
//                     copy once, or if all of B stays in L2, so that rows far apart cost little. Needs N % TN == 0.
//   a_batch(b) = (b / inner)*a_outer + (b % inner)*a_inner, the same for b_batch; a stride of 0 broadcasts.
// Arguments: a, a_offset, b, b_offset, int M, N, K, inner, long a_outer, a_inner, int a_row, a_col, long b_outer,
//   b_inner, int b_row, b_col, EPILOGUE_PARAMS. Global size: (ceil(M / (MR*MT)), ceil(N / TN), batches), local size (1,
//   1, 1).
// Epilogue macros: STORE(acc, b, m, n), STOREV(acc, b, m, n); store dimension n.
#ifndef KERNEL_NAME
#define KERNEL_NAME gemm_item
#endif
#ifndef MR
// rows of a register tile; MR*NV + NV + 1 <= number of vector registers (6x4 or 12x2 of 32; 4x2 of 16)
#define MR 6
#endif
#ifndef NV
#define NV 4  // vectors (of VW floats) in a row of a register tile
#endif
#define TN (NV * VW)  // columns of a tile
#ifndef PANEL
#define PANEL TN  // columns of a packed panel of B; a multiple of TN
#endif
#ifndef MT
#define MT 4  // tiles (of MR rows) per work-item; 16 when there are many, more for B_IN_PLACE
#endif
#ifndef K_BLOCK
#if defined(B_IN_PLACE) && (B_IN_PLACE == 1 || B_IN_PLACE == 2)
#define K_BLOCK 256  // depth of a block (see above); the private copy of B has K_BLOCK*TN floats
#else
#define K_BLOCK 512
#endif
#endif
#ifndef K_CHAINS
// independent accumulators of a tile: 4..8 if MR*NV is below 8 (small M), so that the latency of FMA is hidden
#define K_CHAINS 1
#endif
#ifndef A_COL_MAJOR
#define A_COL_MAJOR 0  // layout of A, see above
#endif
#ifndef PREFETCH_A
// 1: a tile prefetches the next tile's part of A, which the hardware does not foresee (A_COL_MAJOR 1, or 0 with short
// rows)
#define PREFETCH_A 0
#endif
#ifndef B_IN_PLACE
#define B_IN_PLACE 0  // layout of B, see above
#endif
#ifndef WHOLE_VECTORS
#define WHOLE_VECTORS 0  // 1: N % VW == 0, no column is stored alone
#endif
#ifndef CACHE_ALIGNED  // aligns private arrays that are read by vectors, so that no vector crosses a cache line
#define CACHE_ALIGNED __attribute__((aligned(64)))
#endif
#ifndef PLAIN_STORES
#define PLAIN_STORES 0  // 1: the epilogue macros only store, so they may have many call sites
#endif
#ifndef STORE  // without generated epilogue macros: dense C[b][m][n]
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset, const int y_M, const int y_N
#define EPILOGUE_PASS , y, y_offset, y_M, y_N
#define STORE(acc, b, m, n) (y[y_offset + ((ulong)(b) * y_M + (m)) * y_N + (n)] = (acc))
#define STOREV(acc, b, m, n) VSTORE(acc, y + y_offset + ((ulong)(b) * y_M + (m)) * y_N + (n))
#endif

#define B_AHEAD 16  // rows of B that the packing tile prefetches ahead, about 100 ns

#if A_COL_MAJOR == 0
#define A_ROW(m) ((long)(m) * a_row)
#define A_AT(i, k) LOAD(row[i], k)
#elif A_COL_MAJOR == 1
#define A_ROW(m) (m)
#define A_AT(i, k) LOAD(row[i], (long)(k) * a_col)
#else
#define A_ROW(m) ((long)(m) * a_row)
#define A_AT(i, k) LOAD(row[i], (long)(k) * a_col)
#endif
#define MULTIPLY_ADD(k, bv)                                                        \
  OCL_UNROLL for (int i = 0; i < MR; ++i) {                                        \
    const VEC av = (VEC)(A_AT(i, k));                                              \
    OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]); \
  }
#if PREFETCH_A && A_COL_MAJOR == 1
#define ASK_FOR_A(k) PREFETCH(row[0] + MR + (long)(k) * a_col);
#elif PREFETCH_A  // prefetches MR rows of kn elements in kn steps
#define ASK_FOR_A(k)      \
  PREFETCH(next + ahead); \
  ahead += MR;            \
  if (ahead >= kn) {      \
    ahead -= kn;          \
    next += a_row;        \
  }
#else
#define ASK_FOR_A(k)
#endif
#define PACK_FIRST (B_IN_PLACE == 1 && K_CHAINS == 1)

ONE_ITEM __kernel void KERNEL_NAME(__global const IN_T* restrict a, const ulong a_offset,
                                   __global const IN_T* restrict b, const ulong b_offset, const int M, const int N,
                                   const int K, const int inner, const long a_outer, const long a_inner,
                                   const int a_row, const int a_col, const long b_outer, const long b_inner,
                                   const int b_row, const int b_col EPILOGUE_PARAMS) {
  const int first = get_global_id(0) * (MT * MR), n0 = get_global_id(1) * TN, batch = get_global_id(2);
  a += a_offset + (batch / inner) * a_outer + (batch % inner) * a_inner;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner;
  float sums[MT * MR * TN] CACHE_ALIGNED;
#if B_IN_PLACE == 1 || B_IN_PLACE == 2
  float packed[K_BLOCK * TN] CACHE_ALIGNED;
  const int cols = min(TN, N - n0);
#endif
  // Runs once for K = 0 too: the results are then those of sums of 0.
  for (int k0 = 0; k0 == 0 || k0 < K; k0 += K_BLOCK) {
    const int kn = min(K_BLOCK, K - k0);
#if B_IN_PLACE == 3
    __global const IN_T* panel = b + (long)k0 * b_row + n0;
#define B_VECTOR(k, v) LOADV(panel, (long)(k) * b_row + (v) * VW)
#elif B_IN_PLACE
    const float* panel = packed;
#if B_IN_PLACE == 1
    if (PACK_FIRST && cols == TN) {
      // the first tile packs B below, while it multiplies
    } else if (cols == TN) {
      for (int k = 0; k < kn; ++k) {
        __global const IN_T* from = b + (long)(k0 + k) * b_row + n0;
        OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(LOADV(from, v * VW), packed + k * TN + v * VW);
      }
    } else {
      for (int k = 0; k < kn; ++k)
        for (int n = 0; n < TN; ++n) packed[k * TN + n] = n < cols ? LOAD(b, (long)(k0 + k) * b_row + n0 + n) : 0.f;
    }
#else
    for (int n = 0; n < TN; ++n) {
      if (n < cols) {
        __global const IN_T* from = b + (long)k0 * b_row + (long)(n0 + n) * b_col;
        if (b_row == 1) {
          for (int k = 0; k < kn; ++k) packed[k * TN + n] = LOAD(from, k);
        } else {
          for (int k = 0; k < kn; ++k) packed[k * TN + n] = LOAD(from, (long)k * b_row);
        }
      } else {
        for (int k = 0; k < kn; ++k) packed[k * TN + n] = 0.f;
      }
    }
#endif
#define B_VECTOR(k, v) VLOAD(panel + (k) * TN + (v) * VW)
#else
    __global const IN_T* panel = b + ((long)(n0 / PANEL) * K + k0) * PANEL + n0 % PANEL;
#define B_VECTOR(k, v) LOADV(panel, (long)(k) * PANEL + (v) * VW)
#endif
    for (int t = 0; t < MT; ++t) {
      const int m = first + t * MR;
      if (m >= M) break;
      VEC acc[MR][NV];
      __global const IN_T* row[MR];
      OCL_UNROLL for (int i = 0; i < MR; ++i) {
        row[i] = a + A_ROW(min(m + i, M - 1));
#if A_COL_MAJOR
        row[i] += (long)k0 * a_col;
#else
        row[i] += k0;
#endif
        OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
      }
      int k = 0;
#if K_CHAINS > 1
      VEC chain[K_CHAINS][MR][NV];
      OCL_UNROLL for (int u = 0; u < K_CHAINS; ++u) OCL_UNROLL for (int i = 0; i < MR; ++i)
          OCL_UNROLL for (int v = 0; v < NV; ++v) chain[u][i][v] = (VEC)(0.f);
      for (; k + K_CHAINS <= kn; k += K_CHAINS) {
        OCL_UNROLL for (int u = 0; u < K_CHAINS; ++u) OCL_UNROLL for (int v = 0; v < NV; ++v) {
          const VEC bv = B_VECTOR(k + u, v);
          OCL_UNROLL for (int i = 0; i < MR; ++i) chain[u][i][v] = fma((VEC)(A_AT(i, k + u)), bv, chain[u][i][v]);
        }
      }
      OCL_UNROLL for (int u = 0; u < K_CHAINS; ++u) OCL_UNROLL for (int i = 0; i < MR; ++i)
          OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] += chain[u][i][v];
#endif
#if PREFETCH_A && A_COL_MAJOR == 0
      __global const IN_T* next = row[0] + (long)MR * a_row;
      int ahead = 0;
#endif
#if PACK_FIRST
      if (t == 0 && cols == TN) {
        __global const IN_T* from = b + (long)k0 * b_row + n0;
        for (; k < kn; ++k, from += b_row) {
          VEC bv[NV];
          ASK_FOR_A(k)
          OCL_UNROLL for (int v = 0; v < NV; ++v) {
            PREFETCH(from + (long)B_AHEAD * b_row + v * VW);
            bv[v] = LOADV(from, v * VW);
            VSTORE(bv[v], packed + k * TN + v * VW);
          }
          MULTIPLY_ADD(k, bv)
        }
      }
#endif
      for (; k < kn; ++k) {
        VEC bv[NV];
        ASK_FOR_A(k)
        OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = B_VECTOR(k, v);
        MULTIPLY_ADD(k, bv)
      }
      float* tile = sums + (K > K_BLOCK ? t * (MR * TN) : 0);
      if (k0 > 0) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] +=
            VLOAD(tile + i * TN + v * VW);
      }
#if PLAIN_STORES
      if (k0 + kn == K && m + MR <= M && n0 + TN <= N) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
            STOREV(acc[i][v], batch, m + i, n0 + v * VW);
        continue;
      }
#endif
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
          VSTORE(acc[i][v], tile + i * TN + v * VW);
      if (k0 + kn < K) continue;
      // a loop gives the epilogue macros one call site, because they may be long
      const int rows = min(MR, M - m), width = min(TN, N - n0);
      OCL_NO_UNROLL for (int i = 0; i < rows; ++i) {
        int n = 0;
        OCL_NO_UNROLL for (; n + VW <= width; n += VW) {
          const VEC value = VLOAD(tile + i * TN + n);
          STOREV(value, batch, m + i, n0 + n);
        }
#if !WHOLE_VECTORS
        OCL_NO_UNROLL for (; n < width; ++n) STORE(tile[i * TN + n], batch, m + i, n0 + n);
#endif
      }
    }
  }
}
