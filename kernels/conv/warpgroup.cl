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
//   ORDERED 1 (one group): each 32 filters of w lie in the order of tensor_core/store.cl. Behind the last one are zeros.
//   B_PACKED 1: w is the same matrix of each group (width K, depth R*S*C) in blocks as pack/group.cl writes them,
//   [groups][panels][steps][blocks]. If there are several phases, TILE_K must divide C.
// BOXES 1 (16-bit operands, and a tile of which no two fit on a compute unit): the filter is 1 x 1 with stride 1 and no
//   padding, there is one group, and the pixels of x lie at equal distances. So x is a matrix [pixels][C], and one
//   work-item copies both operands in boxes, unless an operand does not begin at a multiple of 16 bytes.
// Grid: global (any number of work-groups up to ceil(pixels/TILE_M) * ceil(K/TILE_N), times GROUP_SIZE, groups,
//   phases), local (GROUP_SIZE, 1, 1). Pixels and phases as for conv/group.cl. STATISTICS: at most ceil(K/TILE_N) *
//   slices work-groups; slices is at most ceil(pixels/TILE_M).
// Epilogue macros: STORE(acc, n, k, h, w), k over all groups. Store dimension k, VW 2 or as many elements as 16 bytes
//   have. STATISTICS 1 (forward only): the kernel also stores the statistics of each k in slices (conv/statistics.cl)
//   by STORE1(value, which, slice, k). BIAS 1 (with STATISTICS): bias[k] is added to each sum.
#ifndef WHOLE_COLUMNS
#define WHOLE_COLUMNS 0  // 1: TILE_N divides K. Then the compiler moves the loads of the epilogue forward
#endif
#define W_ROWS (ORDERED ? (K + 31) / 32 * 32 : K)  // filters of a group in w
#if STATISTICS
#define FOR_OWN_TILES(g) FOR_SLICE_TILES(g, m_tiles, k_tiles, slices)
#define OWN_TILE(g) slice_tile(g, m_tiles, k_tiles, slices)
#elif B_KEPT  // The number of work-groups is a multiple of k_tiles.
#define FOR_OWN_TILES(g) for (int g = get_group_id(0) / k_tiles; g < m_tiles; g += (int)get_num_groups(0) / k_tiles)
#define OWN_TILE(g) ((int2)(g, (int)get_group_id(0) % k_tiles))
#else
#define FOR_OWN_TILES(g) FOR_TILES(g, m_tiles* k_tiles)
#ifdef ONE_COLUMN  // 1: K is at most TILE_N, so a tile is found without divisions
#define OWN_TILE(g) ((int2)(g, 0))
#else
#define OWN_TILE(g) tile_at(g, m_tiles, k_tiles)
#endif
#endif

// Where vectors are whole, the other loop stores the last rows only.
#if VW > 2
#define SHORT_STORES OCL_NO_UNROLL
#else
#define SHORT_STORES UNROLL_STORES
#endif

// x: [batch, groups * C, in_h, in_w] by strides; w: [groups * K][R][S][C], or in blocks; bias: [groups * K]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if STATISTICS
  LOCAL_STATISTICS(statistics);
  int rows_seen = 0, finished_slices = 0;  // rows of the current slice that this warp has seen
#endif
  DECLARE_BOXES(CHUNK_ALIGNED(x_offset) && CHUNK_ALIGNED(w_offset));
  PIPELINE_OF(line, boxes ? 1 : FULL_ARRIVALS);
  DECLARE_PHASE
  const int steps = (depth + TILE_K - 1) / TILE_K;

  int begin = 0;  // first step of the tile, counted over all tiles of the work-group

  if (get_local_id(0) >= CONSUMERS * 128) {
    PRODUCERS_BEGIN();
    const int p = get_local_id(0) - CONSUMERS * 128, chunk = p & 7, row = p >> 3;
#if BOXES
    if (boxes) {
      if (p >= 32) return;
      const ulong x_map = tensor_map(map, 0, x + x_offset, C, pixels, x_w, TILE_M);
      const ulong w_map = tensor_map(map, 1, w + w_offset, C, W_ROWS, C, TILE_N);
      if (p > 0) return;
#if B_KEPT
      stage_kept(line, w_map, get_group_id(0) % k_tiles, 1);
#endif
      FOR_OWN_TILES(g) {
        stage_tile_boxes(line, begin, steps, OWN_TILE(g), (int4)(0), x_map, w_map, 1, 1);
        begin += steps;
      }
      return;
    }
#endif
    const int aligned = CHUNK_ALIGNED(x_offset);
    FOR_OWN_TILES(g) {
      const int2 tile = OWN_TILE(g);
      const int k0 = tile.y * TILE_N;
      DECLARE_PLACES
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
    barrier_expect(full, PIECES * panels * 4 * BLOCK);                                                              \
    copy_blocks(stage + A_ELEMENTS, filters + (long)((TAP(a_at) * C + a_at.c) / TILE_K) * (PIECES * BLOCK), panels, \
                TILE_N / 64, panel, full);                                                                          \
  }
#else
      __global const OPERAND_T* filters = w + (w_offset + ((long)group * K + k0 + row) * R * S * C);
      const int w_rows = ROWS_APART * R * S * C;
#if HALVES
#define STAGE_FILTER(i, source, count) \
  stage_chunk(stage + A_ELEMENTS + row_chunk(row + i * ROWS_APART, chunk), source, 1, count, 1)
#define STAGE_FILTERS(held, step) FOR_FILTERS(a_at, STAGE_FILTER, W_ROWS)
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
#define STAGE_PIXEL(i, source, count) \
  stage_chunk(stage + row_chunk(row + i * ROWS_APART, chunk), source, 1, count, aligned)
#define STAGE_OPERANDS(held, step)                                   \
  {                                                                  \
    DECLARE_SHIFT(a_at)                                              \
    __local OPERAND_T* stage = producer_acquire(line, begin + step); \
    FOR_PIXELS(STAGE_PIXEL)                                          \
    STAGE_FILTERS(held, begin + step)                                \
    producer_commit(line, begin + step);                             \
    a_at = advance(a_at, TILE_K, C, across.count);                   \
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
#if B_KEPT
  wait_for_kept(line);
#endif
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
    const int n0 = group * K + tile.y * TILE_N;
    DECLARE_ROW_PIXELS(m)
    if (VW > 2 && ROWS_INSIDE) {
      // Neighbouring stores have the same columns, so what depends on these alone is loaded once.
      UNROLL_STORES
      for (int step = 0; step < STORE_STEPS; ++step) {
        RowVector sums[2 * STORE_VECTORS];
        next_rows(sums, total);
        OCL_UNROLL
        for (int j = 0; j < STORE_VECTORS; ++j) {
          const int k = vector_column(step * STORE_VECTORS + j);
          if (!WHOLE_COLUMNS && tile.y * TILE_N + k >= K) continue;
          STOREA(sums[2 * j], pixel_n[0], n0 + k, pixel_h[0], pixel_w[0]);
          STOREA(sums[2 * j + 1], pixel_n[1], n0 + k, pixel_h[1], pixel_w[1]);
        }
      }
      continue;
    }
    SHORT_STORES
    for (int step = 0; step < STORE_STEPS; ++step) {
      RowVector sums[2 * STORE_VECTORS];
      next_rows(sums, total);
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (m + i * 8 >= pixels || pixel_h[i] >= OUT_H || pixel_w[i] >= OUT_W) continue;
        OCL_UNROLL
        for (int j = 0; j < STORE_VECTORS; ++j) {
          RowVector sum = sums[2 * j + i];
          const int k = vector_column(step * STORE_VECTORS + j), last = K - tile.y * TILE_N;
          if (k + VW <= last) {
            STOREV(sum, pixel_n[i], n0 + k, pixel_h[i], pixel_w[i]);
          } else if (VW == 2) {
            if (k < last) STORE(sum.s0, pixel_n[i], n0 + k, pixel_h[i], pixel_w[i]);
          }
        }
      }
    }
  }
}
