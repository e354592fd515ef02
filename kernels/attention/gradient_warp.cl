// kernels/attention/gradient_warp.cl: the gradients of attention on warp tensor cores. Comes after tensor_core/warp.cl,
// attention/scores.cl and attention/shared_warp.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum = 2^(s log2(e) - lse)
//   ds = p (dropout(dout v^T) - delta)      delta = sum over d of dout * out
//
//   PASS  rows: a, a2   columns: b, b2   results
//   1     q, dout       k, v             y = SCALE ds k
//   2     k, v          q, dout          y = SCALE ds^T q, y1 = dropout(p)^T dout
//
//                     TILE_C columns per step
//                  +--------------+----         A warp's 16 rows of a step:
//   warp 0    16   | s, dout v^T: |               s = a b^T, grad = a2 b2^T    all operands from local memory
//                  | registers    | next step     p and ds                     in registers
//   warp 1    16   |              |               y1 += p b2, y += ds b        p and ds from registers
//                  +--------------+----
//
// Work-group (i, h, b) owns rows [i*TILE_M, (i+1)*TILE_M) of head h of batch b, which stay in local memory. A ring of
// STAGES buffers holds b and b2 of the current and the next steps: all work-items copy step n + STAGES - 1 (cp.async)
// while the warps work on step n. There is one barrier per step. With PASS 2 the ring also has lse and delta of a
// step's queries. Their loads begin one step earlier.
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 1 and 2, without w and w2: b and b2 take
// their place. WARP_M is 16. Store dimension d. Global size: (ceil(rows / TILE_M) * GROUP_SIZE, heads of the
// rows, batches), local size (GROUP_SIZE, 1, 1).
#define STEP_TILES(n) (ring + (n) % STAGES * 2 * TILE_ELEMENTS)  // b, then b2
#define STATISTICS(n) (statistics + (n) % STAGES * 2 * TILE_C)  // lse, then delta, of step n's queries: [2][TILE_C]

// Returns (row_max, row_sum, delta) of a query, as stored in memory. For a query beyond the last one row_sum is
// negative.
ALWAYS_INLINE float4 raw_statistics(const QueryStatistics o, const int query) {
  if (query >= o.queries) return (float4)(0.0f, -1.0f, 0.0f, 0.0f);
  return (float4)(o.sums[query], o.sums[o.which + query], o.delta[query], 0.0f);
}
// Converts a result of raw_statistics() to (lse, delta), as load_statistics() of attention/scores.cl returns them.
ALWAYS_INLINE float2 reduced_statistics(const float4 raw) {
  if (raw.y < 0.0f) return (float2)(INFINITY, 0.0f);
  return (float2)(raw.y == 0.0f ? (NAN_ROWS ? NAN : INFINITY) : fma(raw.x, LOG2E, log2(raw.y)), raw.z);
}

#define COLUMN_OF(place) (begin + (place).step * TILE_C)
#if PASS == 2
// Stores the statistics that were loaded for step n into local memory, and loads those of the next step, `copied`.
#define STAGE_STATISTICS(n)                                                                                          \
  if ((int)get_local_id(0) < TILE_C) {                                                                               \
    const float2 now = reduced_statistics(raw);                                                                      \
    STATISTICS(n)[get_local_id(0)] = now.x;                                                                          \
    STATISTICS(n)[TILE_C + get_local_id(0)] = now.y;                                                                 \
    if (copied.head < column_heads) {                                                                                \
      const int of = copied.head;                                                                                    \
      const QueryStatistics there = {head_statistics.sums + of * sums_head, head_statistics.delta + of * delta_head, \
                                     sums_which, queries};                                                           \
      raw = raw_statistics(there, COLUMN_OF(copied) + get_local_id(0));                                              \
    }                                                                                                                \
  }
#else
#define STAGE_STATISTICS(n)
#endif
// Copies step n, whose place is `copied`, and moves on to the next place.
#define STAGE_STEP(n)                                                                                             \
  {                                                                                                               \
    const int at = COLUMN_OF(copied), of_head = copied.head;                                                      \
    stage_rows(STEP_TILES(n), b + of_head * b_head + at * b_row, b_row, columns - at, DEPTH, TILE_C, direct);     \
    stage_rows(STEP_TILES(n) + TILE_ELEMENTS, b2 + of_head * b2_head + at * b2_row, b2_row, columns - at, DEPTH2, \
               TILE_C, direct);                                                                                   \
    copied = next_place(copied, steps SEEN_PASS);                                                                 \
    STAGE_STATISTICS(n)                                                                                           \
  }

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local OPERAND_T ring[STAGES * 2 * TILE_ELEMENTS] __attribute__((aligned(128)));
  __local OPERAND_T a_tile[TILE_M * DEPTH_BLOCKS * TILE_K] __attribute__((aligned(128))),
      a2_tile[TILE_M * DEPTH_BLOCKS * TILE_K] __attribute__((aligned(128)));
  __local float statistics[PASS == 2 ? STAGES * 2 * TILE_C : 2] __attribute__((aligned(8)));
  // Work-groups start in order, so the longest causal rows go first.
  const int tile = CAUSAL && !ROWS_ARE_KEYS ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2), lane = get_local_id(0) & 31;
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TILE_C * TILE_C : 0,
            end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + TILE_M) : columns;
  const int steps = max(end - begin + TILE_C - 1, 0) / TILE_C, column_heads = ROWS_ARE_KEYS ? heads_per_kv : 1;
  const int q_head = ROWS_ARE_KEYS ? head * heads_per_kv : head,
            column_head = ROWS_ARE_KEYS ? q_head : head / heads_per_kv;
  const int warp_row0 = (get_local_id(0) >> 5) * WARP_M, first = r0 + warp_row0, row = first + (lane >> 2);
  const int direct = DIRECT && CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset) && CHUNK_ALIGNED(a2_offset) &&
                     CHUNK_ALIGNED(b2_offset);
  const QueryStatistics head_statistics = {sums + sums_offset + batch * sums_batch + q_head * sums_head,
                                           delta + delta_offset + batch * delta_batch + q_head * delta_head, sums_which,
                                           queries};
  b += b_offset + batch * b_batch + column_head * b_head;
  b2 += b2_offset + batch * b2_batch + column_head * b2_head;
#if STORED_MASK
  mask += mask_offset + batch * mask_batch + q_head * mask_head;
#elif MASK
  int mask_head = q_head;
#endif
#if DROPOUT
  uint keep_bits[KEEP_WORDS];
  Draws draws = {state + state_offset, ((ulong)batch * heads + q_head) * queries, (ulong)((keys + 3) / 4)};
#endif
  MARK_SEEN(q_head, rows, columns, begin, steps, column_heads);
  Place copied = first_place(steps, column_heads SEEN_PASS);  // the next step to copy
  float out[DEPTH_TILE / 2], s[TILE_C / 2], grad[TILE_C / 2];
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out[i] = 0.0f;
#if PASS == 2
  float out2[DEPTH_TILE / 2];
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out2[i] = 0.0f;
  float4 raw = raw_statistics(head_statistics, COLUMN_OF(copied) + get_local_id(0));
#else
  const float2 upper = load_statistics(head_statistics, row), lower = load_statistics(head_statistics, row + 8);
  const float row_statistics[4] = {upper.x, lower.x, upper.y, lower.y};
#endif

  // These copies are in the same cp.async group as the first columns, so one wait is enough for both.
  stage_rows(a_tile, a + a_offset + batch * a_batch + head * a_head + r0 * a_row, a_row, rows - r0, DEPTH, TILE_M,
             direct);
  stage_rows(a2_tile, a2 + a2_offset + batch * a2_batch + head * a2_head + r0 * a2_row, a2_row, rows - r0, DEPTH2,
             TILE_M, direct);
  OCL_UNROLL
  for (int n = 0; n < STAGES - 1; ++n) {
    if (copied.head < column_heads) STAGE_STEP(n)
    commit_copies();
  }
  int n = 0;
  for (Place of = first_place(steps, column_heads SEEN_PASS); of.head < column_heads; ++n) {
    WAIT_COPIES(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);  // all see this step's copies, and all have finished reading the previous step
    if (copied.head < column_heads) STAGE_STEP(n + STAGES - 1)
    commit_copies();
    const int c0 = COLUMN_OF(of);
    // with a causal mask: only if some query sees some key in this step
    if (!CAUSAL || (ROWS_ARE_KEYS ? c0 + TILE_C > first : c0 < first + WARP_M)) {
      __local const OPERAND_T *b_tile = STEP_TILES(n), *b2_tile = STEP_TILES(n) + TILE_ELEMENTS;
      multiply_scores(s, a_tile + warp_row0 * TILE_K, b_tile, DEPTH);
      DRAW(keep_bits, row, c0);
      MASK_SCORES(s, row, first, c0, IS_SHOWN(of.step));
#if PASS == 2
      __local const float2* step_statistics = (__local const float2*)STATISTICS(n) + (lane & 3);
      softmax_weights(s, step_statistics, 0);
      multiply_scores(grad, a2_tile + warp_row0 * TILE_K, b2_tile, DEPTH2);
      DROP_SCORES(grad, keep_bits);
      score_gradient(grad, s, grad, step_statistics, 0);
      DROP_SCORES(s, keep_bits);
      add_values(out2, s, b2_tile, DEPTH2);
      add_values(out, grad, b_tile, DEPTH);
#else
      softmax_weights(s, 0, row_statistics);
      multiply_scores(grad, a2_tile + warp_row0 * TILE_K, b2_tile, DEPTH2);
      DROP_SCORES(grad, keep_bits);
      score_gradient(s, s, grad, 0, row_statistics);
      add_values(out, s, b_tile, DEPTH);
#endif
    }
    const Place next = next_place(of, steps SEEN_PASS);
#if PASS == 2
    if (next.head > of.head) {
      NEXT_MASK_HEAD;
#if DROPOUT
      draws.queries_before += queries;
#endif
    }
#endif
    of = next;
  }
  STORE_GRADIENTS(out, out2, row);
}
