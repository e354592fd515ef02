// kernels/attention/warpgroup.cl: attention on warpgroup tensor cores, without the matrix of scores in memory. The
// pipeline is in tensor_core/warpgroup.cl. Comes after attention/scores.cl and attention/shared_warpgroup.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum      out = p v
//   sums = (row_max, row_sum): maximum of s, and sum of exp(s - row_max), over the keys
//
//                        TILE_C keys per step
//                     +--------------+----         A consumer's 64 queries of a step:
//   consumer 0   64   | s: registers |               s = q k^T                    q and k from local memory
//                     +--------------+ next step     p = exp(s - row_max)         in registers; four lanes share a row
//   consumer 1   64   |              |               out = rescale out + p v      p from registers, v from local memory
//                     +--------------+----
//
// Work-group (i, h, b) owns queries [i*TILE_M, (i+1)*TILE_M) of head h of batch b, in local memory all the time. The
// producers bring the keys of a step in one stage of the pipeline, then its values in the next.
//   operands of 16 bits: a tile is [blocks of 64 of the depth][rows][64]. wgmma reads k with the depth contiguous and v
//   with the columns contiguous.
//   operands of 32 bits: a tile is two blocks of 32 of the depth, [64][32], the high part and then the low part. v is
//   transposed while it is stored, [head size][keys]. wgmma expects p from another lane than the one that has computed
//   it. So the keys of v are permuted: position i of eight neighbours holds key 2i (i < 4) or 2(i - 4) + 1.
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 0. SCALE is positive. Store dimension d, VW
// 2.
// Global size: (ceil(queries / TILE_M) * GROUP_SIZE, heads, batches), local size (GROUP_SIZE, 1, 1).
#ifndef OVERLAP
#define OVERLAP HALVES  // 1: the values of a step are multiplied during the softmax of the next; needs 16-bit operands
#endif

// ---- producer ----
// The keys and values that the producers copy in `steps` steps. k, v: their first rows; k_row, v_row: strides of rows;
// keys: number of rows.
typedef struct {
  __global const OPERAND_T *k, *v;
  long k_row, v_row;
  int keys, steps;
#if BLOCKS
  __local const uint* seen;
#endif
} KeyValues;

#if HALVES
ALWAYS_INLINE void produce(const Pipeline line, const KeyValues o, const int direct) {
  int n = 0;  // number of the steps taken
  for (int step = seen_from(0, o.steps SEEN_OF(o)); step < o.steps; step = seen_from(step + 1, o.steps SEEN_OF(o))) {
    const int left = o.keys - step * TILE_C;
    stage_rows(producer_acquire(line, 2 * n), o.k + step * TILE_C * o.k_row, o.k_row, left, DEPTH, TILE_C, direct);
    producer_commit(line, 2 * n);
    stage_rows(producer_acquire(line, 2 * n + 1), o.v + step * TILE_C * o.v_row, o.v_row, left, WIDTH, TILE_C, direct);
    producer_commit(line, 2 * n + 1);
    ++n;
  }
  producer_finish(line, 2 * n);
}
#else
#define HELD (2 * B_CHUNKS)  // number of float4 of a tile that a producer holds in registers, two blocks of 4
ALWAYS_INLINE void fetch_keys(float4* held, const KeyValues o, const int step, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = step * TILE_C + (p >> 3) + i % B_CHUNKS * ROWS_APART, d = i / B_CHUNKS * TILE_K + (p & 7) * 4;
    held[i] = fetch_quad(o.k + row * o.k_row + d, 1, row < o.keys ? DEPTH - d : 0, quads);
  }
}
ALWAYS_INLINE void fetch_values(float4* held, const KeyValues o, const int step, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128, quad = p & 7, column = value_column(p);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = step * TILE_C + i / 4 * TILE_K + (quad >> 1) * 8 + i % 4 * 2 + (quad & 1);  // permuted (file head)
    held[i] = fetch_quad(o.v + row * o.v_row + column, 1, row < o.keys ? WIDTH - column : 0, quads);
  }
}
ALWAYS_INLINE void put_keys(const Pipeline line, const float4* held, const int n) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  __local float* to = producer_acquire(line, 2 * n);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i)
    store_row_quad(to + i / B_CHUNKS * PIECES * B_ELEMENTS, (p >> 3) + i % B_CHUNKS * ROWS_APART, p & 7, held[i]);
  producer_commit(line, 2 * n);
}
ALWAYS_INLINE void put_values(const Pipeline line, const float4* held, const int n) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  __local float* to = producer_acquire(line, 2 * n + 1);
  store_transposed_block(to, value_column(p), p & 7, held);
  store_transposed_block(to + PIECES * B_ELEMENTS, value_column(p), p & 7, held + 4);
  producer_commit(line, 2 * n + 1);
}
// Loads the keys and values of a step into registers one step before it stores them.
ALWAYS_INLINE void produce(const Pipeline line, const KeyValues o, const int quads) {
  float4 keys[HELD], values[HELD];
  int more = 1;
  for (int n = 0, step = seen_from(0, o.steps SEEN_OF(o)); more; ++n, step = seen_from(step + 1, o.steps SEEN_OF(o))) {
    more = step < o.steps;
    if (n > 0) put_keys(line, keys, n - 1);
    if (more) fetch_keys(keys, o, step, quads);
    if (n > 0) put_values(line, values, n - 1);
    if (more) fetch_values(values, o, step, quads);
  }
}
#endif

// ---- consumer ----
#if HALVES
#define WAIT_SCORES(but, n)                                  \
  WGMMA_WAIT(but);                                           \
  OCL_UNROLL                                                 \
  for (int i = 0; i < TILE_C / 2; ++i) FENCE_REGISTER(s[i]); \
  consumer_release(line, 2 * (n))
#define WAIT_VALUES(n)                                             \
  WGMMA_WAIT("0");                                                 \
  OCL_UNROLL                                                       \
  for (int i = 0; i < DEPTH_TILE / 2; ++i) FENCE_REGISTER(out[i]); \
  consumer_release(line, 2 * (n) + 1)
#endif

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  PIPELINE(line);
  __local OPERAND_T q_tile[TILE_M * DEPTH_TILE] __attribute__((aligned(1024)));
  // Work-groups start in order, so the longest causal rows go first.
  const int tile = CAUSAL ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2);
  const int end = CAUSAL ? min(keys, r0 + TILE_M) : keys, steps = (end + TILE_C - 1) / TILE_C;
  const int produces = get_local_id(0) >= CONSUMERS * 128;
  const int direct = DIRECT && CHUNK_ALIGNED(q_offset) && CHUNK_ALIGNED(k_offset) && CHUNK_ALIGNED(v_offset);
  // The copies of q are published with the first keys, so the consumers' first wait covers both.
  q += q_offset + batch * q_batch + head * q_head + r0 * q_row;
  if (produces && direct)
    stage_rows(q_tile, q, q_row, queries - r0, DEPTH, TILE_M, 1);
  else if (produces)
    stage_rows(q_tile, q, q_row, queries - r0, DEPTH, TILE_M, 0);
  MARK_SEEN(head, queries, keys, 0, steps, 1);
  if (produces) {
    const KeyValues o = {k + k_offset + batch * k_batch + head / heads_per_kv * k_head,
                         v + v_offset + batch * v_batch + head / heads_per_kv * v_head,
                         k_row,
                         v_row,
                         keys,
                         steps SEEN_PASS};
    if (direct)
      produce(line, o, 1);
    else
      produce(line, o, 0);
    return;
  }

  const int lane = get_local_id(0) & 31, row = r0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
  const int first = r0 + (get_local_id(0) >> 7) * 64;  // the warpgroup's first row
  float out[DEPTH_TILE / 2], row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.0f, 0.0f};
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out[i] = 0.0f;
#if STORED_MASK
  mask += mask_offset + batch * mask_batch + head * mask_head;
#elif MASK
  int mask_head = head;
#endif
  // number of steps with a key that some query of the warpgroup sees
  const int visible_steps = CAUSAL ? min(steps, (first + 63) / TILE_C + 1) : steps;
  int n = 0, step = seen_from(0, steps SEEN_PASS);  // a step, and its number among those taken
  float s[TILE_C / 2], rescale[2];
#if DROPOUT
  uint keep_bits[TILE_C / 64];
  const Draws draws = {state + state_offset, ((ulong)batch * heads + head) * queries, (ulong)((keys + 3) / 4)};
#endif
#if HALVES
  uint p[TILE_C / 4];
#endif
#if OVERLAP
  // The products for the scores of a step are issued before the products with the values of the previous step. So the
  // tensor cores multiply the values while the softmax runs.
  if (step < visible_steps) {
    begin_scores(s, q_tile, consumer_wait(line, 0));
    DRAW(keep_bits, row, step * TILE_C);
    WAIT_SCORES("0", 0);
    MASK_SCORES(s, row, first, step * TILE_C, IS_SHOWN(step));
    softmax_step(s, row_max, row_sum, rescale);
    DROP_SCORES(s, keep_bits);
    to_operands(p, s);
    for (n = 1, step = seen_from(step + 1, steps SEEN_PASS); step < visible_steps;
         ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
      __local const OPERAND_T *v_tile = consumer_wait(line, 2 * n - 1), *k_tile = consumer_wait(line, 2 * n);
      begin_scores(s, q_tile, k_tile);
      begin_values(out, p, v_tile);
      DRAW(keep_bits, row, step * TILE_C);
      WAIT_SCORES("1", n);
      MASK_SCORES(s, row, first, step * TILE_C, IS_SHOWN(step));
      softmax_step(s, row_max, row_sum, rescale);
      DROP_SCORES(s, keep_bits);
      WAIT_VALUES(n - 1);
      rescale_rows(out, rescale);
      to_operands(p, s);
    }
    begin_values(out, p, consumer_wait(line, 2 * n - 1));
    WAIT_VALUES(n - 1);
  }
#else
  for (; step < visible_steps; ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
    __local const OPERAND_T* k_tile = consumer_wait(line, 2 * n);
#if HALVES
    begin_scores(s, q_tile, k_tile);
    DRAW(keep_bits, row, step * TILE_C);
    WAIT_SCORES("0", n);
#else
    DRAW(keep_bits, row, step * TILE_C);
    multiply_scores(s, q_tile, k_tile);
    consumer_release(line, 2 * n);
#endif
    MASK_SCORES(s, row, first, step * TILE_C, IS_SHOWN(step));
    softmax_step(s, row_max, row_sum, rescale);
    DROP_SCORES(s, keep_bits);
    rescale_rows(out, rescale);
    __local const OPERAND_T* v_tile = consumer_wait(line, 2 * n + 1);
#if HALVES
    to_operands(p, s);
    begin_values(out, p, v_tile);
    WAIT_VALUES(n);
#else
    add_values(out, s, v_tile, keys - step * TILE_C);
    consumer_release(line, 2 * n + 1);
#endif
  }
#endif
  for (; step < steps; ++n, step = seen_from(step + 1, steps SEEN_PASS)) skip_stages(line, 2 * n, 2 * n + 2);

  STORE_ATTENTION(out, row_max, row_sum, row);
}
