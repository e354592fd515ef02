// kernels/conv/subgroup_matrix.cl: 2-D convolution by matrix instructions of a subgroup as an implicit GEMM, forward and
// (DATA_GRADIENT) gradient with respect to the input.
//
// Formulas and the phases of a strided gradient are those of conv/group.cl. The instructions, the loop and
// the slabs of the stores are in tensor_core/subgroup_matrix.cl, the taps are in conv/taps.cl. GEMM with M = pixels of
// y, N = produced channels k, depth = the used taps (r, s), and for each tap its channels c. A chunk of the depth (16
// bytes) has channels of one tap. So C is a multiple of CHUNK, and a step may include several taps.
//
// x_c is 1; C and the other strides are multiples of CHUNK.
//   w packed [groups * K][R][S][C]: forward from weight [groups*K, C, R, S], gradient from weight [groups*C, K, R, S].
// Grid: global (ceil(pixels/TILE_M) * ceil(K/TILE_N) * GROUP_SIZE, groups, phases), local (GROUP_SIZE, 1, 1). Pixels
//   and phases as for conv/group.cl.
// Epilogue macros: STORE(acc, n, k, h, w), k over all groups. Store dimension k, VW 2 or as many elements as 16 bytes
//   have.
#define ROWS_APART (GROUP_SIZE / 4)  // pixels or filters from one chunk of a work-item to the next
#define A_CHUNKS ROW_CHUNKS(TILE_M)
#define B_CHUNKS ROW_CHUNKS(TILE_N)
// Loads this work-item's chunks of a step, at position `at` of the depth.
#define LOAD_PIXEL(i, source, count) a_held[i] = load_chunk(source, 1, count, aligned)
#define LOAD_FILTER(i, source, count) b_held[i] = load_chunk(source, 1, count, 1)
#define LOAD_TAPS                              \
  {                                            \
    DECLARE_SHIFT(at)                          \
    FOR_PIXELS(LOAD_PIXEL)                     \
    FOR_FILTERS(at, LOAD_FILTER, K)            \
    at = advance(at, STEP_K, C, across.count); \
  }

// x: [batch, groups * C, in_h, in_w] by strides; w: [groups * K][R][S][C]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) SUBGROUP_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local uint4 local_memory[LOCAL_BYTES / 16];
  __local OPERAND_T* stage = (__local OPERAND_T*)local_memory;
  DECLARE_PHASE
  const int p = get_local_id(0), chunk = p % 4, row = p / 4, aligned = CHUNK_ALIGNED(x_offset);
  const int2 tile = tile_at(get_group_id(0), m_tiles, k_tiles);
  const int k0 = tile.y * TILE_N;
  DECLARE_PLACES
  __global const OPERAND_T* filters = w + (w_offset + ((long)group * K + k0 + row) * R * S * C);
  const int w_rows = ROWS_APART * R * S * C;
  const TapPosition begin = {0, 0, 0};
  TapPosition at = advance(begin, chunk * CHUNK, C, across.count);
  uint4 a_held[A_CHUNKS], b_held[B_CHUNKS];
  FragmentC total[FRAGS_M * FRAGS_N];
  MULTIPLY_STEPS(total, stage, (depth + STEP_K - 1) / STEP_K, 1, 1, LOAD_TAPS);

  __local float* slab = slab_of(local_memory);
  const int whole = WHOLE_TILE;
  UNROLL_STORES
  for (int step = 0; step < SLABS; ++step) {
    next_slab(slab, total);
    const int m0 = tile.x * TILE_M + slab_top(step), n0 = k0 + slab_left(step);
    if (whole) {
      OCL_UNROLL
      for (int i = 0; i < SLAB_VECTORS; ++i) {
        DECLARE_PIXEL(m0 + slab_row(i))
        STOREA(slab_vector(slab + slab_row(i) * SLAB_ROW + slab_column(i)), n, group * K + n0 + slab_column(i), h, v);
      }
      continue;
    }
    OCL_NO_UNROLL
    for (int i = 0; i < SLAB_VECTORS; ++i) {
      const int pixel = m0 + slab_row(i), k = n0 + slab_column(i);
      DECLARE_PIXEL(pixel)
      __local const float* sums = slab + slab_row(i) * SLAB_ROW + slab_column(i);
      if (pixel >= pixels || h >= OUT_H || v >= OUT_W) continue;
      if (k + VW <= K) {
        STOREV(slab_vector(sums), n, group * K + k, h, v);
      } else {
        OCL_NO_UNROLL
        for (int l = k; l < K; ++l, ++sums) STORE(*sums, n, group * K + l, h, v);
      }
    }
  }
}
