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
// Copies this work-item's chunk of a step, at position `at` of the depth, for its A_CHUNKS pixels and B_CHUNKS filters.
#define STAGE_TAPS(to)                                                                                                \
  {                                                                                                                   \
    const int over_h = down.shift - at.r * down.pixel_step, over_w = across.shift - at.s * across.pixel_step;         \
    const int shift = over_h * x_h + over_w * x_w + at.c, used = at.r < down.count, of_filter = TAP(at) * C + at.c;   \
    OCL_UNROLL                                                                                                        \
    for (int i = 0; i < A_CHUNKS; ++i) {                                                                              \
      const int h = (places[i] >> 16) + over_h, v = (short)(places[i] & 0xffff) + over_w;                             \
      const int inside = used && (uint)h < (uint)in_h && (uint)v < (uint)in_w;                                        \
      stage_chunk((to) + row_chunk(row + i * ROWS_APART, chunk), inside ? from[i] + shift : x, 1, inside ? CHUNK : 0, \
                  aligned);                                                                                           \
    }                                                                                                                 \
    OCL_UNROLL                                                                                                        \
    for (int i = 0; i < B_CHUNKS; ++i) {                                                                              \
      const int inside = used && k0 + row + i * ROWS_APART < K;                                                       \
      stage_chunk((to) + A_ELEMENTS + row_chunk(row + i * ROWS_APART, chunk),                                         \
                  inside ? filters + (i * w_rows + of_filter) : w, 1, inside ? CHUNK : 0, 1);                         \
    }                                                                                                                 \
    at = advance(at, TILE_K, C, across.count);                                                                        \
  }

// x: [batch, groups * C, in_h, in_w] by strides; w: [groups * K][R][S][C]; bias: [groups * K]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  LOCAL_STAGES(stages);
#if STATISTICS
  LOCAL_STATISTICS(statistics);
  int rows_seen = 0;  // rows of the current slice that this warp has seen
#endif
#if DATA_GRADIENT
  const int step_h = stride_h, step_w = stride_w;
  const int phase_h = (int)get_group_id(2) / stride_w, phase_w = (int)get_group_id(2) % stride_w;
#else
  const int step_h = 1, step_w = 1, phase_h = 0, phase_w = 0;
#endif
  const int rows = (out_h + step_h - 1) / step_h, columns = (out_w + step_w - 1) / step_w,
            pixels = batch * rows * columns;
  const int group = get_group_id(1), p = get_local_id(0), chunk = p & 7, row = p >> 3,
            aligned = CHUNK_ALIGNED(x_offset);
  const Taps down = taps_of(R, phase_h, pad_h, stride_h, dilation_h),
             across = taps_of(S, phase_w, pad_w, stride_w, dilation_w);
  const int m_tiles = (pixels + TILE_M - 1) / TILE_M, k_tiles = (K + TILE_N - 1) / TILE_N;
  FOR_OWN_TILES(g) {
    const int2 tile = OWN_TILE(g);
    const int k0 = tile.y * TILE_N;
    __global const OPERAND_T* from[A_CHUNKS];
    int places[A_CHUNKS];  // row and column of x that the pixel reads at shift 0, 16 bits each
    OCL_UNROLL
    for (int i = 0; i < A_CHUNKS; ++i) {
      const int m = tile.x * TILE_M + row + i * ROWS_APART, column = m % columns, line = m / columns % rows,
                n = m / columns / rows;
      const int h = m < pixels ? DATA_GRADIENT ? line : line * stride_h - pad_h : OUTSIDE;
      const int v = DATA_GRADIENT ? column : column * stride_w - pad_w;
      from[i] = x + (x_offset + min(n, batch - 1) * x_n + (long)group * C + h * (long)x_h + v * (long)x_w);
      places[i] = (h << 16) | (v & 0xffff);
    }
    __global const OPERAND_T* filters = w + (w_offset + ((long)group * K + k0 + row) * R * S * C);
    const int w_rows = ROWS_APART * R * S * C, depth = down.count * across.count * C;
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
    // whole: 1 if no element of the work-group's tile lies outside. If the strides do not divide the sizes, the last
    // row or column of a phase may lie outside.
    const int whole = STORES_ALIGNED && (tile.x + 1) * TILE_M <= pixels && (tile.y + 1) * TILE_N <= K &&
                      rows * step_h == out_h && columns * step_w == out_w;
    UNROLL_STORES
    for (int step = 0; step < WARP_M / 16; ++step) {
      RowVector vectors[2 * LANE_VECTORS];
      next_warp_rows(vectors, total);
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int pixel = m0 + step * 16 + i * 8, n = pixel / columns / rows;
        const int h = pixel / columns % rows * step_h + phase_h, v = pixel % columns * step_w + phase_w;
        if (whole) {
          OCL_UNROLL
          for (int j = 0; j < LANE_VECTORS; ++j)
            STOREA(vectors[i * LANE_VECTORS + j], n, group * K + n0 + vector_column(j), h, v);
          continue;
        }
        if (pixel >= pixels || h >= out_h || v >= out_w) continue;
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
