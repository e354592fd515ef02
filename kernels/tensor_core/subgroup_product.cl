// kernels/tensor_core/subgroup_product.cl: products by matrix instructions of a subgroup: staging of both operands, the
// multiply loop, and the stores. Comes after tensor_core/subgroup_matrix.cl.
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
#define FRAGS_M (SUB_M / FRAG_M)
#define FRAGS_N (SUB_N / FRAG_N)

// ---- where an element lies in a stage ----
#define STEP_K (4 * CHUNK)  // depth of a step
#define STAGE_ROW (STEP_K + CHUNK)  // elements from a row of a stage to the next
#define STAGE_BYTES ((TILE_M + TILE_N) * STAGE_ROW * (HALVES ? 2 : 4))
// The first row and column of the subgroup in the tile.
ALWAYS_INLINE int sub_row(void) {
  return get_local_id(0) / LANES / SUBS_N * SUB_M;
}
ALWAYS_INLINE int sub_column(void) {
  return get_local_id(0) / LANES % SUBS_N * SUB_N;
}
// total += a * b for one step. total[i * FRAGS_N + j] is the fragment at row i * FRAG_M and column j * FRAG_N of the
// subgroup.
ALWAYS_INLINE void multiply_step(FragmentC* total, __local const OPERAND_T* stage) {
  __local const OPERAND_T *a = stage + sub_row() * STAGE_ROW, *b = stage + (TILE_M + sub_column()) * STAGE_ROW;
  OCL_UNROLL
  for (int k = 0; k < STEP_K; k += FRAG_K) {
    FragmentB columns[FRAGS_N];
    OCL_UNROLL
    for (int j = 0; j < FRAGS_N; ++j) columns[j] = read_b(b + j * FRAG_N * STAGE_ROW + k, STAGE_ROW);
    OCL_UNROLL
    for (int i = 0; i < FRAGS_M; ++i) {
      const FragmentA rows = read_a(a + i * FRAG_M * STAGE_ROW + k, STAGE_ROW);
      OCL_UNROLL
      for (int j = 0; j < FRAGS_N; ++j) total[i * FRAGS_N + j] = multiply(rows, columns[j], total[i * FRAGS_N + j]);
    }
  }
}

// ---- staging ----
// A work-item loads and keeps CHUNKS(width) chunks of an operand in each step. If the depth is contiguous (rows 1), a
// chunk lies along the depth. Otherwise it lies along the width, and the chunks of DEPTHS neighbouring depths are
// transposed together, so that 4 bytes are written at once.
#define ROW_CHUNKS(width) (((width) * 4 + GROUP_SIZE - 1) / GROUP_SIZE)
#define BLOCKS(width) (((width) * 4 / DEPTHS + GROUP_SIZE - 1) / GROUP_SIZE)
#define CHUNKS(width) (DEPTHS * BLOCKS(width))

// Writes to the stage chunk or block number i of this work-item, which begins at held[0]. width: TILE_M or TILE_N.
ALWAYS_INLINE void keep_row(__local OPERAND_T* to, const uint4* held, const int i, const int width) {
  const int at = get_local_id(0) + i * GROUP_SIZE;
  if (width * 4 % GROUP_SIZE == 0 || at < width * 4)
    *(__local uint4*)(to + at / 4 * STAGE_ROW + at % 4 * CHUNK) = held[0];
}
ALWAYS_INLINE void keep_block(__local OPERAND_T* to, const uint4* held, const int i, const int width) {
  const int at = get_local_id(0) + i * GROUP_SIZE;
  if (width * 4 / DEPTHS % GROUP_SIZE != 0 && at >= width * 4 / DEPTHS) return;
  keep_transposed(to + at / 16 * CHUNK * STAGE_ROW + at % 16 * DEPTHS, held, STAGE_ROW);
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
    if (LOADS_AHEAD && steps > 0) LOAD;                                                    \
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
