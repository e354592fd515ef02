// kernels/conv/warp.cl: 2-D convolution on warp tensor cores as an implicit GEMM, forward and (DATA_GRADIENT) gradient
// with respect to the input.
//
// Formulas and the phases of a strided gradient are those of conv/group.cl. The loop is in
// tensor_core/warp.cl, the taps are in conv/taps.cl. GEMM with M = pixels of y, N = produced channels k, depth = the
// used taps (r, s), and for each tap its channels c. A chunk of the depth (16 bytes) has channels of one tap. So C is a
// multiple of CHUNK, and a step may include several taps.
//
// x_c is 1; C and the other strides are multiples of CHUNK.
//   w packed [groups * K][R][S][C]: forward from weight [groups*K, C, R, S], gradient from weight [groups*C, K, R, S].
// Grid: global (ceil(pixels/TILE_M) * ceil(K/TILE_N) * GROUP_SIZE, groups, phases), local (GROUP_SIZE, 1, 1). Pixels
//   and phases as for conv/group.cl. STATISTICS: at most ceil(K/TILE_N) * slices work-groups; slices is at most
//   ceil(pixels/TILE_M).
// Epilogue macros: STORE(acc, n, k, h, w), k over all groups. Store dimension k, VW 2 or as many elements as 16 bytes
//   have. STATISTICS 1 (forward only): the kernel also stores the statistics of each k in slices (conv/statistics.cl)
//   by STORE1(value, which, slice, k). BIAS 1 (with STATISTICS): bias[k] is added to each sum.
// A work-group has one tile, or with STATISTICS the tiles of its slices. BEGIN_TILE waits until all work-items have
// read the stages and statistics of the previous tile.
#if STATISTICS
#define FOR_OWN_TILES(g) FOR_SLICE_TILES(g, m_tiles, k_tiles, slices)
#define OWN_TILE(g) slice_tile(g, m_tiles, k_tiles, slices)
#define BEGIN_TILE() barrier(CLK_LOCAL_MEM_FENCE)
#else
#define FOR_OWN_TILES(g) const int g = get_group_id(0);
#define OWN_TILE(g) tile_at(g, m_tiles, k_tiles)
#define BEGIN_TILE()
#endif
#define ROWS_APART (GROUP_SIZE / 8)  // pixels or filters from one chunk of a work-item to the next
#define A_CHUNKS (TILE_M / ROWS_APART)
#define B_CHUNKS (TILE_N / ROWS_APART)
// Copies this work-item's chunks of a step, at position `at` of the depth.
#define STAGE_PIXEL(i, source, count) \
  stage_chunk(held + row_chunk(row + i * ROWS_APART, chunk), source, 1, count, aligned)
#define STAGE_FILTER(i, source, count) \
  stage_chunk(held + A_ELEMENTS + row_chunk(row + i * ROWS_APART, chunk), source, 1, count, 1)
#define STAGE_TAPS(to)                         \
  {                                            \
    __local OPERAND_T* held = to;              \
    DECLARE_SHIFT(at)                          \
    FOR_PIXELS(STAGE_PIXEL)                    \
    FOR_FILTERS(at, STAGE_FILTER, K)           \
    at = advance(at, TILE_K, C, across.count); \
  }

// x: [batch, groups * C, in_h, in_w] by strides; w: [groups * K][R][S][C]; bias: [groups * K]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  LOCAL_STAGES(stages);
#if STATISTICS
  LOCAL_STATISTICS(statistics);
  int rows_seen = 0;  // rows of the current slice that this warp has seen
#endif
  DECLARE_PHASE
  const int p = get_local_id(0), chunk = p & 7, row = p >> 3, aligned = CHUNK_ALIGNED(x_offset);
  FOR_OWN_TILES(g) {
    const int2 tile = OWN_TILE(g);
    const int k0 = tile.y * TILE_N;
    DECLARE_PLACES
    __global const OPERAND_T* filters = w + (w_offset + ((long)group * K + k0 + row) * R * S * C);
    const int w_rows = ROWS_APART * R * S * C;
    const TapPosition begin = {0, 0, 0};
    TapPosition at = advance(begin, chunk * CHUNK, C, across.count);
    float total[SUMS];
    BEGIN_TILE();
    MULTIPLY_STEPS(total, stages, (depth + TILE_K - 1) / TILE_K, 1, 1, STAGE_TAPS);
#if BIAS
    add_bias(total, bias + (bias_offset + group * K + k0), K - k0);
#endif
#if STATISTICS
    rows_seen = add_tile(statistics, 0, total, rows_seen, pixels - tile.x * TILE_M);
    if (tile.x + slices >= m_tiles) {
      STORE_STATISTICS(statistics, 0, tile.x % slices, k0, K, group * K);
      rows_seen = 0;
    }
#endif

    const int m0 = tile.x * TILE_M + warp_row(), n0 = k0 + warp_column();
    const int whole = WHOLE_TILE;
    UNROLL_STORES
    for (int step = 0; step < WARP_M / 16; ++step) {
      RowVector vectors[2 * LANE_VECTORS];
      next_warp_rows(vectors, total);
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int pixel = m0 + step * 16 + i * 8;
        DECLARE_PIXEL(pixel)
        if (whole) {
          OCL_UNROLL
          for (int j = 0; j < LANE_VECTORS; ++j)
            STOREA(vectors[i * LANE_VECTORS + j], n, group * K + n0 + vector_column(j), h, v);
          continue;
        }
        if (pixel >= pixels || h >= OUT_H || v >= OUT_W) continue;
        OCL_UNROLL
        for (int j = 0; j < LANE_VECTORS; ++j) {
          RowVector sum = vectors[i * LANE_VECTORS + j];
          const int k = n0 + vector_column(j);
          if (k + VW <= K) {
            STOREV(sum, n, group * K + k, h, v);
          } else {
            OCL_NO_UNROLL
            for (int l = k; l < K; ++l, sum = ROTATED(sum)) STORE(sum.s0, n, group * K + l, h, v);
          }
        }
      }
    }
  }
}
