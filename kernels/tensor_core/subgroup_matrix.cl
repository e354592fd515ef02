// kernels/tensor_core/subgroup_matrix.cl: matrix instructions of a subgroup (DPAS, WMMA, MFMA), staging of both
// operands, and the multiply loop. Comes after tensor_core/types.cl.
//
// A work-group computes a TILE_M x TILE_N tile of C in fp32. Each of its subgroups computes SUB_M x SUB_N of the tile
// in fragments of FRAG_M x FRAG_N. A step stages 64 bytes of the depth of each row of A and each column of B in local
// memory.
//
//                    TILE_N           local memory:  a [TILE_M][STAGE_ROW], b [TILE_N][STAGE_ROW]
//                +------+------+      Both have contiguous depth, whatever their order in global memory is, because
//                | sub- | sub- |      each lane reads neighbours along the depth. STAGE_ROW is an odd number of chunks
//         SUB_M  |group |group |      of 16 bytes, so that 8 rows which are read at once lie in different banks.
//        TILE_M  |  0   |  1   |
//                +------+------+
//                 SUB_N
//
// One macro says which instructions there are:
//
//   macro            GPUs       lanes  FRAG_M x FRAG_N       macro               GPUs    lanes  FRAG_M x FRAG_N
//   MATRIX_DPAS 8    Arc          8     8 x  8               MATRIX_WMMA 12      RDNA 4   32    16 x 16
//   MATRIX_DPAS 16   Xe-HPC, Xe2 16     8 x 16               MATRIX_MFMA 4, 2    CDNA     64    32 x 32
//   MATRIX_WMMA 11   RDNA 3      32    16 x 16
//
// Which elements lane l has, [row][depth] of A, [depth][column] of B, [row][column] of C:
//
//            element e of A            element e of B            element i of C
//   DPAS 8   [e/2][2l + e%2]           [e][l]                    [i][l]
//   DPAS 16  [e][l]                    [e][l]                    [i][l]
//   WMMA 11  [l%16][e]                 [e][l%16]                 [2i + l/16][l%16]
//   WMMA 12  [l%16][8(l/16) + e]       [8(l/16) + e][l%16]       [8(l/16) + i][l%16]
//   MFMA     [l%32][CHUNK(l/32) + e]   [CHUNK(l/32) + e][l%32]   [8(i/4) + 4(l/32) + i%4][l%32]
//
// An MFMA instruction takes 4 elements of a lane, 2 of bf16 with MATRIX_MFMA 2 (the first CDNA), or 1 float. Several
// instructions multiply a fragment: each takes the next elements, of A and B alike, so that lanes read 16 bytes at
// once. Sources: cl_intel_subgroup_matrix_multiply_accumulate; AMD's matrix instruction calculator and the manuals of
// the RDNA 3, RDNA 4 and CDNA instruction sets.
#if !defined(MATRIX_DPAS) && !defined(MATRIX_WMMA) && !defined(MATRIX_MFMA)
#define MATRIX_DPAS 16
#endif
#if defined(MATRIX_DPAS)
#define LANES MATRIX_DPAS
#define FRAG_M 8
#define FRAG_N MATRIX_DPAS
#define FRAG_K 16
#define SUBGROUP_SIZE __attribute__((intel_reqd_sub_group_size(LANES)))
typedef float8 FragmentC;
typedef uint8 FragmentB;
#if MATRIX_DPAS == 8
typedef uint8 FragmentA;
#else
typedef ushort8 FragmentA;
#endif
typedef FragmentA PartA;
typedef FragmentB PartB;
#elif defined(MATRIX_WMMA)
#define LANES 32
#define FRAG_M 16
#define FRAG_N 16
#define FRAG_K 16
typedef float8 FragmentC;
#if MATRIX_WMMA == 11
typedef uint8 FragmentA;
#else
typedef uint4 FragmentA;
#endif
typedef FragmentA FragmentB;
typedef FragmentA PartA;
typedef FragmentA PartB;
#else
#define LANES 64
#define FRAG_M 32
#define FRAG_N 32
#define FRAG_K (2 * CHUNK)
typedef float16 FragmentC;
typedef uint4 FragmentA;
typedef uint4 FragmentB;
#if !HALVES || (defined(IN_BF16) && MATRIX_MFMA == 2)
#define MFMA_PARTS 4  // instructions of a fragment
typedef uint PartA;
#else
#define MFMA_PARTS 2
typedef uint2 PartA;
#endif
typedef PartA PartB;
#endif
#ifndef SUBGROUP_SIZE
#define SUBGROUP_SIZE
#endif
#ifndef TILE_M
#define TILE_M 128  // rows of C per work-group: a multiple of SUB_M
#endif
#ifndef TILE_N
#define TILE_N 128  // columns of C per work-group: a multiple of SUB_N
#endif
#ifndef SUB_M
#define SUB_M 32  // rows of C per subgroup: a multiple of FRAG_M
#endif
#ifndef SUB_N
#define SUB_N 32  // columns of C per subgroup: a multiple of FRAG_N and 8
#endif
#define SUBS_N (TILE_N / SUB_N)  // subgroups along the columns
#define SUBGROUPS (TILE_M / SUB_M * SUBS_N)
#define GROUP_SIZE (SUBGROUPS * LANES)
#define FRAGS_M (SUB_M / FRAG_M)
#define FRAGS_N (SUB_N / FRAG_N)

// ---- instructions ----
// Returns c + a * b for the operands of one instruction.
#if defined(MATRIX_DPAS)
#if defined(IN_BF16)
#define DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#else
#define DPAS intel_sub_group_f16_f16_matrix_mad_k16
#endif
// Some drivers have the functions without declaring them.
#if MATRIX_DPAS == 8
float8 __attribute__((overloadable)) DPAS(int8 a, int8 b, float8 c);
#define INSTRUCTION(a, b, c) DPAS(as_int8(a), as_int8(b), c)
#else
float8 __attribute__((overloadable)) DPAS(short8 a, int8 b, float8 c);
#define INSTRUCTION(a, b, c) DPAS(as_short8(a), as_int8(b), c)
#endif
#else
#if defined(IN_HALF)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#if defined(MATRIX_WMMA) && MATRIX_WMMA == 11
#if defined(IN_BF16)
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(a), as_short16(b), c)
#else
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), c)
#endif
#elif defined(MATRIX_WMMA)
#if defined(IN_BF16)
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(as_short8(a), as_short8(b), c)
#else
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(as_half8(a), as_half8(b), c)
#endif
#elif !HALVES
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x2f32(as_float(a), as_float(b), c, 0, 0, 0)
#elif defined(IN_HALF)
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x8f16(as_half4(a), as_half4(b), c, 0, 0, 0)
#elif MATRIX_MFMA == 4
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(as_short4(a), as_short4(b), c, 0, 0, 0)
#else
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x4bf16(as_short2(a), as_short2(b), c, 0, 0, 0)
#endif
#endif
ALWAYS_INLINE FragmentC multiply_parts(const PartA a, const PartB b, const FragmentC c) {
  return INSTRUCTION(a, b, c);
}

// ---- where an element lies ----
#define STEP_K (4 * CHUNK)  // depth of a step
#define STAGE_ROW (STEP_K + CHUNK)  // elements from a row of a stage to the next
#define STAGE_BYTES ((TILE_M + TILE_N) * STAGE_ROW * (HALVES ? 2 : 4))
ALWAYS_INLINE int lane_id(void) {
  return get_local_id(0) % LANES;
}
// The first row and column of the subgroup in the tile.
ALWAYS_INLINE int sub_row(void) {
  return get_local_id(0) / LANES / SUBS_N * SUB_M;
}
ALWAYS_INLINE int sub_column(void) {
  return get_local_id(0) / LANES % SUBS_N * SUB_N;
}
// Return the row and the column of the lane's element i of a fragment of C.
ALWAYS_INLINE int fragment_row(const int i) {
#if defined(MATRIX_DPAS)
  return i;
#elif defined(MATRIX_WMMA)
  return MATRIX_WMMA == 11 ? 2 * i + lane_id() / 16 : 8 * (lane_id() / 16) + i;
#else
  return 8 * (i / 4) + 4 * (lane_id() / 32) + i % 4;
#endif
}
ALWAYS_INLINE int fragment_column(void) {
  return lane_id() % FRAG_N;
}

// ---- fragments ----
// Return the lane's part of a fragment that begins at row and depth 0 of `from`, in a stage.
ALWAYS_INLINE FragmentB read_b(__local const OPERAND_T* from) {
  __local const uint4* row = (__local const uint4*)(from + fragment_column() * STAGE_ROW);
#if defined(MATRIX_DPAS) || (defined(MATRIX_WMMA) && MATRIX_WMMA == 11)
  return (uint8)(row[0], row[1]);
#else
  return row[lane_id() / FRAG_N];
#endif
}
ALWAYS_INLINE FragmentA read_a(__local const OPERAND_T* from) {
#if defined(MATRIX_DPAS)
#if MATRIX_DPAS == 8
  __local const uint* at = (__local const uint*)from + lane_id();
#else
  __local const ushort* at = from + lane_id();
#endif
  const int row = MATRIX_DPAS == 8 ? STAGE_ROW / 2 : STAGE_ROW;
  return (FragmentA)(at[0], at[row], at[2 * row], at[3 * row], at[4 * row], at[5 * row], at[6 * row], at[7 * row]);
#else
  return read_b(from);
#endif
}
// Returns c + a * b for fragments.
ALWAYS_INLINE FragmentC multiply(const FragmentA a, const FragmentB b, const FragmentC c) {
#if !defined(MFMA_PARTS)
  return multiply_parts(a, b, c);
#elif MFMA_PARTS == 2
  return multiply_parts(a.hi, b.hi, multiply_parts(a.lo, b.lo, c));
#else
  return multiply_parts(a.s3, b.s3,
                        multiply_parts(a.s2, b.s2, multiply_parts(a.s1, b.s1, multiply_parts(a.s0, b.s0, c))));
#endif
}
// total += a * b for one step. total[i * FRAGS_N + j] is the fragment at row i * FRAG_M and column j * FRAG_N of the
// subgroup.
ALWAYS_INLINE void multiply_step(FragmentC* total, __local const OPERAND_T* stage) {
  __local const OPERAND_T *a = stage + sub_row() * STAGE_ROW, *b = stage + (TILE_M + sub_column()) * STAGE_ROW;
  OCL_UNROLL
  for (int k = 0; k < STEP_K; k += FRAG_K) {
    FragmentB columns[FRAGS_N];
    OCL_UNROLL
    for (int j = 0; j < FRAGS_N; ++j) columns[j] = read_b(b + j * FRAG_N * STAGE_ROW + k);
    OCL_UNROLL
    for (int i = 0; i < FRAGS_M; ++i) {
      const FragmentA rows = read_a(a + i * FRAG_M * STAGE_ROW + k);
      OCL_UNROLL
      for (int j = 0; j < FRAGS_N; ++j) total[i * FRAGS_N + j] = multiply(rows, columns[j], total[i * FRAGS_N + j]);
    }
  }
}

// ---- staging ----
// A work-item loads and keeps CHUNKS(width) chunks of an operand in each step. If the depth is contiguous (rows 1), a
// chunk lies along the depth. Otherwise it lies along the width, and the chunks of DEPTHS neighbouring depths are
// transposed together, so that 4 bytes are written at once.
#define DEPTHS (HALVES ? 2 : 1)
#define ROW_CHUNKS(width) (((width) * 4 + GROUP_SIZE - 1) / GROUP_SIZE)
#define BLOCKS(width) (((width) * 4 / DEPTHS + GROUP_SIZE - 1) / GROUP_SIZE)
#define CHUNKS(width) (DEPTHS * BLOCKS(width))

// Returns CHUNK elements of `from`, `stride` elements apart. The first `valid` elements are inside the matrix; the
// others are zeros. direct: 1 if `stride` is 1 and `from` lies at a multiple of 16 bytes.
ALWAYS_INLINE uint4 load_chunk(__global const OPERAND_T* from, const long stride, const int valid, const int direct) {
  if (direct && valid >= CHUNK) return *(__global const uint4*)from;
  OPERAND_T x[CHUNK];
  OCL_UNROLL
  for (int j = 0; j < CHUNK; ++j) x[j] = j < valid ? from[j * stride] : 0;
#if HALVES
  return as_uint4((ushort8)(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]));
#else
  return as_uint4((float4)(x[0], x[1], x[2], x[3]));
#endif
}
// Writes to the stage chunk or block number i of this work-item, which begins at held[0]. width: TILE_M or TILE_N.
ALWAYS_INLINE void keep_row(__local OPERAND_T* to, const uint4* held, const int i, const int width) {
  const int at = get_local_id(0) + i * GROUP_SIZE;
  if (width * 4 % GROUP_SIZE == 0 || at < width * 4)
    *(__local uint4*)(to + at / 4 * STAGE_ROW + at % 4 * CHUNK) = held[0];
}
ALWAYS_INLINE void keep_block(__local OPERAND_T* to, const uint4* held, const int i, const int width) {
  const int at = get_local_id(0) + i * GROUP_SIZE;
  if (width * 4 / DEPTHS % GROUP_SIZE != 0 && at >= width * 4 / DEPTHS) return;
  __local uint* column = (__local uint*)(to + at / 16 * CHUNK * STAGE_ROW) + at % 16;
  const int row = STAGE_ROW / DEPTHS;
#if HALVES
  const uint4 even = (held[0] & 0xffffu) | held[1] << 16, odd = held[0] >> 16 | (held[1] & 0xffff0000u);
  column[0] = even.x;
  column[row] = odd.x;
  column[2 * row] = even.y;
  column[3 * row] = odd.y;
  column[4 * row] = even.z;
  column[5 * row] = odd.z;
  column[6 * row] = even.w;
  column[7 * row] = odd.w;
#else
  column[0] = held[0].x;
  column[row] = held[0].y;
  column[2 * row] = held[0].z;
  column[3 * row] = held[0].w;
#endif
}
// Keeps all chunks of an operand.
ALWAYS_INLINE void keep(__local OPERAND_T* to, const uint4* held, const int width, const int rows) {
  if (rows) {
    OCL_UNROLL
    for (int i = 0; i < ROW_CHUNKS(width); ++i) keep_row(to, held + i, i, width);
  } else {
    OCL_UNROLL
    for (int i = 0; i < BLOCKS(width); ++i) keep_block(to, held + i * DEPTHS, i, width);
  }
}
// The part of an operand that one work-item loads in each step.
typedef struct {
  __global const OPERAND_T* from;  // the first chunk of the next step
  long along_width, along_depth;  // strides in elements
  int width_left, depth_left;  // elements of the matrix that remain from `from` on, in each direction
} OperandShare;
// Returns this work-item's share of an operand. Its depth is the direction of K, its width the direction of M or N.
// matrix: the first row of the tile. left: number of rows from there on. rows: 1 if the operand is contiguous along its
// depth.
ALWAYS_INLINE OperandShare share_of(__global const OPERAND_T* matrix, const long along_width, const long along_depth,
                                    const int left, const int K, const int rows) {
  const int item = get_local_id(0);
  const int w = rows ? item / 4 : item / 16 * CHUNK, d = rows ? item % 4 * CHUNK : item % 16 * DEPTHS;
  const OperandShare share = {matrix + w * along_width + d * along_depth, along_width, along_depth, left - w, K - d};
  return share;
}
// Loads the next step's chunks of this work-item. rows, direct: as for share_of and load_chunk.
ALWAYS_INLINE void fetch(uint4* held, OperandShare* share, const int width, const int rows, const int direct) {
  const int step = rows ? GROUP_SIZE / 4 : GROUP_SIZE / 16 * CHUNK, count = rows ? ROW_CHUNKS(width) : BLOCKS(width);
  OCL_UNROLL
  for (int i = 0; i < count; ++i) {
    __global const OPERAND_T* from = share->from + i * (step * share->along_width);
    const int width_left = share->width_left - i * step;
    if (rows) {
      held[i] = load_chunk(from, share->along_depth, width_left > 0 ? share->depth_left : 0, direct);
    } else {
      OCL_UNROLL
      for (int j = 0; j < DEPTHS; ++j)
        held[i * DEPTHS + j] = load_chunk(from + j * share->along_depth, share->along_width,
                                          share->depth_left > j ? width_left : 0, direct);
    }
  }
  share->from += STEP_K * share->along_depth;
  share->depth_left -= STEP_K;
}

// Writes to total the product a * b over `steps` steps. LOAD loads the next step into a_held and b_held.
#if HALVES
#define SUM_STEPS 0
#else
#define SUM_STEPS (256 / STEP_K)  // steps after which a running sum of floats is added to the total
#endif
#ifdef MATRIX_DPAS
#define LOADS_AHEAD 0  // 1: the next step is loaded while the current one is multiplied
#else
#define LOADS_AHEAD 1
#endif
#define MULTIPLY_STEPS(total, stage, steps, a_rows, b_rows, LOAD)                          \
  {                                                                                        \
    FragmentC sum[FRAGS_M * FRAGS_N];                                                      \
    OCL_UNROLL                                                                             \
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) total[i] = sum[i] = (FragmentC)(0.0f);     \
    if (LOADS_AHEAD) LOAD;                                                                 \
    for (int step = 0; step < steps; ++step) {                                             \
      if (!LOADS_AHEAD) LOAD;                                                              \
      barrier(CLK_LOCAL_MEM_FENCE); /* all have read the step before */                    \
      keep(stage, a_held, TILE_M, a_rows);                                                 \
      keep(stage + TILE_M * STAGE_ROW, b_held, TILE_N, b_rows);                            \
      barrier(CLK_LOCAL_MEM_FENCE);                                                        \
      if (LOADS_AHEAD && step + 1 < steps) LOAD;                                           \
      multiply_step(SUM_STEPS ? sum : total, stage);                                       \
      if (SUM_STEPS && ((step & (SUM_STEPS - 1)) == SUM_STEPS - 1 || step + 1 == steps)) { \
        OCL_UNROLL                                                                         \
        for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) {                                      \
          total[i] += sum[i];                                                              \
          sum[i] = (FragmentC)(0.0f);                                                      \
        }                                                                                  \
      }                                                                                    \
    }                                                                                      \
  }

// ---- stores ----
// A lane has one column of a fragment of C. Through local memory, it gets vectors of VW neighbours of a row instead:
// each subgroup writes a slab of FRAG_M x SLAB_N sums, then its lanes read vectors.
#define SLAB_N (SUB_N < 32 ? SUB_N : 32)
#define SLAB_ROW (SLAB_N + 4)  // floats from a row of the slab to the next
#define SLABS (FRAGS_M * (SUB_N / SLAB_N))
#define SLAB_FRAGS (SLAB_N / FRAG_N)
#define SLAB_VECTORS (FRAG_M * SLAB_N / VW / LANES)  // vectors of a lane
#define SLAB_BYTES (SUBGROUPS * FRAG_M * SLAB_ROW * 4)
#define LOCAL_BYTES (STAGE_BYTES > SLAB_BYTES ? STAGE_BYTES : SLAB_BYTES)
typedef VEC RowVector;
// If the epilogue is long, the loop over slabs is not unrolled, because the unrolled code would not fit in the
// instruction cache. Otherwise it is unrolled. Then moving the sums to the front (next_slab) needs no instructions.
#if LONG_STORES
#define UNROLL_STORES OCL_NO_UNROLL
#else
#define UNROLL_STORES OCL_UNROLL
#endif

// Returns the subgroup's slab.
ALWAYS_INLINE __local float* slab_of(__local uint4* local_memory) {
  return (__local float*)local_memory + get_local_id(0) / LANES * FRAG_M * SLAB_ROW;
}
// Writes the next slab, from the first fragments of `total`. The remaining fragments move to the front. All work-items
// of the group must call it together.
ALWAYS_INLINE void next_slab(__local float* slab, FragmentC* total) {
  barrier(CLK_LOCAL_MEM_FENCE);  // all have read the stage, or the slab before
  OCL_UNROLL
  for (int j = 0; j < SLAB_FRAGS; ++j) {
    const float* sums = (const float*)(total + j);
    OCL_UNROLL
    for (int i = 0; i < FRAG_M * FRAG_N / LANES; ++i)
      slab[fragment_row(i) * SLAB_ROW + j * FRAG_N + fragment_column()] = sums[i];
  }
  OCL_UNROLL
  for (int i = 0; i < FRAGS_M * FRAGS_N - SLAB_FRAGS; ++i) total[i] = total[i + SLAB_FRAGS];
  barrier(CLK_LOCAL_MEM_FENCE);
}
// Return the row and the first column of the lane's vector v in the slab.
ALWAYS_INLINE int slab_row(const int v) {
  return (v * LANES + lane_id()) / (SLAB_N / VW);
}
ALWAYS_INLINE int slab_column(const int v) {
  return (v * LANES + lane_id()) % (SLAB_N / VW) * VW;
}
// Returns VW sums of a row of the slab.
ALWAYS_INLINE RowVector slab_vector(__local const float* from) {
#if VW == 8
  return (float8)(*(__local const float4*)from, *(__local const float4*)(from + 4));
#else
  return *(__local const RowVector*)from;
#endif
}
// Return the first row and column of slab number `step` in the tile.
ALWAYS_INLINE int slab_top(const int step) {
  return sub_row() + step / (SUB_N / SLAB_N) * FRAG_M;
}
ALWAYS_INLINE int slab_left(const int step) {
  return sub_column() + step % (SUB_N / SLAB_N) * SLAB_N;
}
