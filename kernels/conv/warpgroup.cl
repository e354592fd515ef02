// kernels/conv/warpgroup.cl: 2-D convolution on warpgroup tensor cores as an implicit GEMM, forward and (DATA_GRADIENT)
// gradient with respect to the input.
//
// Formulas and the phases of a strided gradient are those of conv/group.cl. The pipeline is in
// tensor_core/warpgroup.cl, the taps are in conv/taps.cl. GEMM with M = pixels of y, N = produced channels k, depth =
// the used taps (r, s), and for each tap its channels c. A chunk of the depth (16 bytes) has channels of one tap. So C
// is a multiple of CHUNK, and a step may include several taps.
//
// x_c is 1; C and the other strides are multiples of CHUNK.
//   w packed [groups * K][R][S][C]: forward from weight [groups*K, C, R, S], gradient from weight [groups*C, K, R, S].
//   B_PACKED 1: w is the same matrix of each group (width K, depth R*S*C) in blocks as pack/group.cl writes them,
//   [groups][panels][steps][blocks]. If there are several phases, TILE_K must divide C.
// Grid: global (any number of work-groups up to ceil(pixels/TILE_M) * ceil(K/TILE_N), times GROUP_SIZE, groups,
//   phases), local (GROUP_SIZE, 1, 1). Pixels and phases as for conv/group.cl. STATISTICS: at most ceil(K/TILE_N) *
//   slices work-groups; slices is at most ceil(pixels/TILE_M).
// Epilogue macros: STORE(acc, n, k, h, w), k over all groups. Store dimension k, VW 2 or as many elements as 16 bytes
//   have. STATISTICS 1 (forward only): the kernel also stores the statistics of each k in slices (conv/statistics.cl)
//   by STORE1(value, which, slice, k). BIAS 1 (with STATISTICS): bias[k] is added to each sum.
#if STATISTICS
#define FOR_OWN_TILES(g) FOR_SLICE_TILES(g, m_tiles, k_tiles, slices)
#define OWN_TILE(g) slice_tile(g, m_tiles, k_tiles, slices)
#else
#define FOR_OWN_TILES(g) FOR_TILES(g, m_tiles* k_tiles)
#define OWN_TILE(g) tile_at(g, m_tiles, k_tiles)
#endif

// x: [batch, groups * C, in_h, in_w] by strides; w: [groups * K][R][S][C], or in blocks; bias: [groups * K]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if STATISTICS
  LOCAL_STATISTICS(statistics);
  int rows_seen = 0, finished_slices = 0;  // rows of the current slice that this warp has seen
#endif
  PIPELINE(line);
#if DATA_GRADIENT
  const int step_h = stride_h, step_w = stride_w;
  const int phase_h = (int)get_group_id(2) / stride_w, phase_w = (int)get_group_id(2) % stride_w;
#else
  const int step_h = 1, step_w = 1, phase_h = 0, phase_w = 0;
#endif
  const int rows = (out_h + step_h - 1) / step_h, columns = (out_w + step_w - 1) / step_w,
            pixels = batch * rows * columns;
  const int m_tiles = (pixels + TILE_M - 1) / TILE_M, k_tiles = (K + TILE_N - 1) / TILE_N, group = get_group_id(1);
  const Taps down = taps_of(R, phase_h, pad_h, stride_h, dilation_h),
             across = taps_of(S, phase_w, pad_w, stride_w, dilation_w);
  const int depth = down.count * across.count * C, steps = (depth + TILE_K - 1) / TILE_K;

  int begin = 0;  // first step of the tile, counted over all tiles of the work-group

  if (get_local_id(0) >= CONSUMERS * 128) {
    PRODUCERS_BEGIN();
    const int p = get_local_id(0) - CONSUMERS * 128, chunk = p & 7, row = p >> 3;
    const int aligned = CHUNK_ALIGNED(x_offset);
    FOR_OWN_TILES(g) {
      const int2 tile = OWN_TILE(g);
      const int m0 = tile.x * TILE_M, k0 = tile.y * TILE_N;
      __global const OPERAND_T* from[A_CHUNKS];
      int at[A_CHUNKS];  // row and column of x that the pixel reads at shift 0, 16 bits each
      OCL_UNROLL
      for (int i = 0; i < A_CHUNKS; ++i) {
        const int m = m0 + row + i * ROWS_APART, column = m % columns, line_of = m / columns % rows,
                  n = m / columns / rows;
        const int h = m < pixels ? DATA_GRADIENT ? line_of : line_of * stride_h - pad_h : OUTSIDE;
        const int v = DATA_GRADIENT ? column : column * stride_w - pad_w;
        from[i] = x + (x_offset + min(n, batch - 1) * x_n + (long)group * C + h * (long)x_h + v * (long)x_w);
        at[i] = (h << 16) | (v & 0xffff);
      }
      TapPosition a_at = {0, 0, 0};
      a_at = advance(a_at, chunk * CHUNK, C, across.count);
#if B_PACKED
      const int all_panels = (K + 63) / 64, panels = min(all_panels - tile.y * (TILE_N / 64), TILE_N / 64);
      const long panel = (long)((R * S * C + TILE_K - 1) / TILE_K) * (PIECES * BLOCK);
      __global const float* filters = w + (w_offset + ((long)group * all_panels + tile.y * (TILE_N / 64)) * panel);
// Producer 0 copies the blocks of a step, because its position in the depth (`at`) is the first of the step.
#define STAGE_FILTERS(held, step)                                                                                   \
  if (p == 0) {                                                                                                     \
    const uint full = line.full + 8 * ((step) % STAGES);                                                            \
    barrier_expect(full, PIECES * panels * BLOCK_BYTES);                                                            \
    copy_blocks(stage + A_ELEMENTS, filters + (long)((TAP(a_at) * C + a_at.c) / TILE_K) * (PIECES * BLOCK), panels, \
                TILE_N / 64, panel, full);                                                                          \
  }
#else
      __global const OPERAND_T* filters = w + (w_offset + ((long)group * K + k0 + row) * R * S * C);
      const int w_rows = ROWS_APART * R * S * C;
#if HALVES
#define STAGE_FILTERS(held, step)                                                                        \
  OCL_UNROLL                                                                                             \
  for (int i = 0; i < B_CHUNKS; ++i) {                                                                   \
    const int inside = used && k0 + row + i * ROWS_APART < K;                                            \
    stage_chunk(stage + A_ELEMENTS + row_chunk(row + i * ROWS_APART, chunk),                             \
                inside ? filters + (i * w_rows + TAP(a_at) * C + a_at.c) : w, 1, inside ? CHUNK : 0, 1); \
  }
#else
#define FETCH(held)                                                                          \
  {                                                                                          \
    const int tap = TAP(b_at);                                                               \
    OCL_UNROLL                                                                               \
    for (int i = 0; i < B_CHUNKS; ++i)                                                       \
      held[i] = fetch_quad(filters + (i * w_rows + tap * C + b_at.c), 1,                     \
                           b_at.r < down.count && k0 + row + i * ROWS_APART < K ? 4 : 0, 1); \
    b_at = advance(b_at, TILE_K, C, across.count);                                           \
  }
#define STAGE_FILTERS(held, step) \
  OCL_UNROLL                      \
  for (int i = 0; i < B_CHUNKS; ++i) store_row_quad(stage + A_ELEMENTS, row + i * ROWS_APART, chunk, held[i]);
#endif
#endif
#define STAGE_OPERANDS(held, step)                                                                                     \
  {                                                                                                                    \
    const int over_h = down.shift - a_at.r * down.pixel_step, over_w = across.shift - a_at.s * across.pixel_step;      \
    const int shift = over_h * x_h + over_w * x_w + a_at.c, used = a_at.r < down.count;                                \
    __local OPERAND_T* stage = producer_acquire(line, begin + step);                                                   \
    OCL_UNROLL                                                                                                         \
    for (int i = 0; i < A_CHUNKS; ++i) {                                                                               \
      const int h = (at[i] >> 16) + over_h, v = (short)(at[i] & 0xffff) + over_w;                                      \
      const int inside = used && (uint)h < (uint)in_h && (uint)v < (uint)in_w;                                         \
      stage_chunk(stage + row_chunk(row + i * ROWS_APART, chunk), inside ? from[i] + shift : x, 1, inside ? CHUNK : 0, \
                  aligned);                                                                                            \
    }                                                                                                                  \
    STAGE_FILTERS(held, begin + step)                                                                                  \
    producer_commit(line, begin + step);                                                                               \
    a_at = advance(a_at, TILE_K, C, across.count);                                                                     \
  }
#if HALVES || B_PACKED
      for (int step = 0; step < steps; ++step) STAGE_OPERANDS(none, step)
#else
      // Filters are loaded two steps ahead, because the latency of memory is longer than a step.
      TapPosition b_at = a_at;
      float4 even[B_CHUNKS], odd[B_CHUNKS];
      for (int step = 0; step < steps + 2; step += 2) {
        if (step >= 2) STAGE_OPERANDS(even, step - 2)
        if (step < steps) FETCH(even)
        if (step >= 2 && step - 1 < steps) STAGE_OPERANDS(odd, step - 1)
        if (step + 1 < steps) FETCH(odd)
      }
#endif
      begin += steps;
    }
#if HALVES
    producer_finish(line, begin);
#endif
    return;
  }

  CONSUMERS_BEGIN();
  const int lane = get_local_id(0) & 31;
  FOR_OWN_TILES(g) {
    const int2 tile = OWN_TILE(g);
    const int m = tile.x * TILE_M + (get_local_id(0) >> 5) * 16 + (lane >> 2);
    float total[TILE_N / 2];
    consume(total, line, begin, begin + steps, 1, 1);
    begin += steps;
#if BIAS
    add_bias(total, bias + (bias_offset + group * K + tile.y * TILE_N), K - tile.y * TILE_N);
#endif
#if STATISTICS
    rows_seen = add_tile(statistics, finished_slices & 1, total, rows_seen, pixels - tile.x * TILE_M);
    if (tile.x + slices >= m_tiles) {
      STORE_STATISTICS(statistics, finished_slices, tile.x % slices, tile.y * TILE_N, K, group * K);
      ++finished_slices;
      rows_seen = 0;
    }
#endif
    UNROLL_STORES
    for (int step = 0; step < STORE_STEPS; ++step) {
      RowVector sums[2 * STORE_VECTORS];
      next_rows(sums, total);
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int pixel = m + i * 8, h = pixel / columns % rows * step_h + phase_h,
                  v = pixel % columns * step_w + phase_w, n = pixel / columns / rows;
        const int first = tile.y * TILE_N;
        // true for the whole work-group if no element of its tile lies outside. If the strides do not divide the sizes,
        // the last row or column of a phase may lie outside.
        if (STORES_ALIGNED && (tile.x + 1) * TILE_M <= pixels && first + TILE_N <= K && rows * step_h == out_h &&
            columns * step_w == out_w) {
          OCL_UNROLL
          for (int j = 0; j < STORE_VECTORS; ++j)
            STOREA(sums[2 * j + i], n, group * K + first + vector_column(step * STORE_VECTORS + j), h, v);
          continue;
        }
        OCL_UNROLL
        for (int j = 0; j < STORE_VECTORS; ++j) {
          RowVector sum = sums[2 * j + i];
          const int k = first + vector_column(step * STORE_VECTORS + j);
          if (pixel >= pixels || h >= out_h || v >= out_w) continue;
          if (k + VW <= K) {
            STOREV(sum, n, group * K + k, h, v);
          } else {
            OCL_NO_UNROLL
            for (int at = k; at < K; ++at, sum = ROTATED(sum)) STORE(sum.s0, n, group * K + at, h, v);
          }
        }
      }
    }
  }
}
