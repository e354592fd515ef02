// kernels/conv/weight_warpgroup.cl: gradient of a 2-D convolution with respect to its weight on warpgroup tensor cores.
// Both tensors are read in place.
//
// The formula, the arguments and the splits over pixels are those of conv/weight_group.cl, the pipeline is in
// tensor_core/warpgroup.cl. GEMM with M = filters k (A = dy, filters contiguous), N = (r, s, c) flattened with c
// fastest (B = x), depth = pixels of dy. A chunk of x (16 bytes) has channels of one tap, so C is a multiple of CHUNK.
// A producer of x copies the same columns, and so the same tap, for all pixels.
//
// split_pixels (pixels of a split) is a multiple of TILE_K. The channel strides are 1; C, K and the other strides are
//   multiples of CHUNK.
// Grid: global (ceil(R*S*C/TILE_N) * ceil(K/TILE_M) * GROUP_SIZE, groups, splits), local (GROUP_SIZE, 1, 1).
// Epilogue macros: STORE(acc, split * filters + k, c, r, s); k over all groups, c within the group. Store dimension c,
//   VW 2 or as many elements as 16 bytes have.

// dy: [batch, groups * K, out_h, out_w] by strides; x: [batch, groups * C, in_h, in_w] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  PIPELINE(line);
  const int width = R * S * C, pixels = batch * out_h * out_w, group = get_group_id(1), split = get_group_id(2);
  const int2 tile = tile_at(get_group_id(0), (K + TILE_M - 1) / TILE_M, (width + TILE_N - 1) / TILE_N);
  const int m0 = tile.x * TILE_M, n0 = tile.y * TILE_N;
  const int first = split * split_pixels, last = min(pixels, first + split_pixels);
  const int steps = max(0, (last - first + TILE_K - 1) / TILE_K);

  if (get_local_id(0) >= CONSUMERS * 128) {
    PRODUCERS_BEGIN();
    const int p = get_local_id(0) - CONSUMERS * 128;
    const int a_chunk = p % (TILE_M / CHUNK), a_at = p / (TILE_M / CHUNK), a_valid = K - m0 - a_chunk * CHUNK;
    const int dy_aligned = CHUNK_ALIGNED(dy_offset), x_aligned = CHUNK_ALIGNED(x_offset);
    dy += dy_offset + (long)group * K + m0 + a_chunk * CHUNK;
    x += x_offset + (long)group * C;
    // This work-item copies the columns from `column` on, all of one tap, for some pixels of each step. x_depth: the
    // first of these pixels. With 16-bit operands the pixels are X_PIXEL_STEP apart, with 32-bit ones they are blocks
    // of 4 neighbours.
#if HALVES
#define X_PIXEL_STEP (PRODUCERS / (TILE_N / CHUNK))
    const int x_chunk = p % (TILE_N / CHUNK), x_depth = p / (TILE_N / CHUNK), column = n0 + x_chunk * CHUNK;
#else
#define X_PIXEL_STEP (TILE_K / B_BLOCKS)  // pixels from one block of a work-item to the next
    const int x_depth = depth_of(p, 0), column = n0 + column_of(p);
#endif
    const int low_h = column < width ? column / C / S * dilation_h - pad_h : OUTSIDE,
              low_w = column / C % S * dilation_w - pad_w;
    // The current pixel: its number, and the row, column and address of x that the tap reads.
    int at = first + x_depth, h = at / out_w % out_h * stride_h + low_h, v = at % out_w * stride_w + low_w;
    __global const OPERAND_T* tap =
        x + (at / out_w / out_h * x_n + (at / out_w % out_h * stride_h + low_h) * (long)x_h +
             (at % out_w * stride_w + low_w) * (long)x_w + column % C);
    // At the end of a row v restarts and the address moves by next_row, at the end of an image by next_image.
    const int last_v = out_w * stride_w + low_w, last_h = out_h * stride_h + low_h;
    const long next_row = stride_h * (long)x_h - (long)(out_w * stride_w) * x_w,
               next_image = x_n - (long)(out_h * stride_h) * x_h;
#define ADVANCE_PIXEL(by)                   \
  {                                         \
    at += by;                               \
    v += by##_v;                            \
    h += by##_h;                            \
    tap += by##_x;                          \
    const int row_ends = v >= last_v;       \
    v -= row_ends ? out_w * stride_w : 0;   \
    h += row_ends ? stride_h : 0;           \
    tap += row_ends ? next_row : 0;         \
    const int image_ends = h >= last_h;     \
    h -= image_ends ? out_h * stride_h : 0; \
    tap += image_ends ? next_image : 0;     \
  }
// Splits the distance of `pixels` pixels into images, rows and columns.
#define DISTANCE(by, pixels)                                                                       \
  const int by = (pixels), by##_v = by % out_w * stride_w, by##_h = by / out_w % out_h * stride_h; \
  const long by##_x = by / out_w / out_h * x_n + by##_h * (long)x_h + by##_v * (long)x_w
#define X_INSIDE (at < last && (uint)h < (uint)in_h && (uint)v < (uint)in_w)
#if HALVES
    DISTANCE(x_step, X_PIXEL_STEP);
#define STAGE_X(held)                                                                                        \
  OCL_UNROLL                                                                                                 \
  for (int i = 0; i < B_CHUNKS; ++i) {                                                                       \
    const int inside = X_INSIDE;                                                                             \
    stage_chunk(stage + A_ELEMENTS + column_chunk(x_depth + i * X_PIXEL_STEP, x_chunk), inside ? tap : x, 1, \
                inside ? CHUNK : 0, x_aligned);                                                              \
    ADVANCE_PIXEL(x_step)                                                                                    \
  }
#else
    DISTANCE(next, 1);
    DISTANCE(block, X_PIXEL_STEP - 3);
#define FETCH(held)                                            \
  OCL_UNROLL                                                   \
  for (int i = 0; i < B_CHUNKS; ++i) {                         \
    held[i] = fetch_quad(tap, 1, X_INSIDE ? 4 : 0, x_aligned); \
    if (i % 4 < 3)                                             \
      ADVANCE_PIXEL(next)                                      \
    else                                                       \
      ADVANCE_PIXEL(block)                                     \
  }
#define STAGE_X(held)                \
  OCL_UNROLL                         \
  for (int i = 0; i < B_BLOCKS; ++i) \
    store_transposed_block(stage + A_ELEMENTS, column_of(p), depth_of(p, i) / 4, held + 4 * i);
#endif
#define STAGE_OPERANDS(held, step)                                                                                   \
  {                                                                                                                  \
    __local OPERAND_T* stage = producer_acquire(line, step);                                                         \
    OCL_UNROLL                                                                                                       \
    for (int i = 0; i < A_CHUNKS; ++i) {                                                                             \
      const int depth = a_at + i * (PRODUCERS / (TILE_M / CHUNK)), pixel = first + (step) * TILE_K + depth;          \
      const int valid = pixel < last ? a_valid : 0;                                                                  \
      const long from =                                                                                              \
          DY_DENSE ? (long)pixel * dy_w                                                                              \
                   : pixel / out_w / out_h * dy_n + pixel / out_w % out_h * (long)dy_h + pixel % out_w * (long)dy_w; \
      stage_chunk(stage + column_chunk(depth, a_chunk), valid > 0 ? dy + from : x, 1, valid, dy_aligned);            \
    }                                                                                                                \
    STAGE_X(held)                                                                                                    \
    producer_commit(line, step);                                                                                     \
  }
#if HALVES
    for (int step = 0; step < steps; ++step) STAGE_OPERANDS(none, step)
    producer_finish(line, steps);
#else
    // x is loaded two steps ahead, because the latency of memory is longer than a step.
    float4 even[B_CHUNKS], odd[B_CHUNKS];
    for (int step = 0; step < steps + 2; step += 2) {
      if (step >= 2) STAGE_OPERANDS(even, step - 2)
      if (step < steps) FETCH(even)
      if (step >= 2 && step - 1 < steps) STAGE_OPERANDS(odd, step - 1)
      if (step + 1 < steps) FETCH(odd)
    }
#endif
    return;
  }

  CONSUMERS_BEGIN();
  float total[TILE_N / 2];
  consume(total, line, 0, steps, 0, 0);
  const int lane = get_local_id(0) & 31, m = m0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
  const int filters = split * (int)get_global_size(1) * K + group * K;
  UNROLL_STORES
  for (int step = 0; step < STORE_STEPS; ++step) {
    RowVector sums[2 * STORE_VECTORS];
    next_rows(sums, total);
    OCL_UNROLL
    for (int j = 0; j < STORE_VECTORS; ++j) {
      const int n = n0 + vector_column(step * STORE_VECTORS + j), c = n % C, s = n / C % S, r = n / C / S;
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        RowVector sum = sums[2 * j + i];
        const int k = filters + m + 8 * i;
        if (n >= width || m + 8 * i >= K) continue;
        if (c + VW <= STORED_C) {  // a vector lies in one tap, because C is a multiple of CHUNK
          STOREV(sum, k, c, r, s);
        } else {
          OCL_NO_UNROLL
          for (int at = c; at < STORED_C; ++at, sum = ROTATED(sum)) STORE(sum.s0, k, at, r, s);
        }
      }
    }
  }
}
