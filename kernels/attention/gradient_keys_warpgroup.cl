// kernels/attention/gradient_keys_warpgroup.cl: the consumers of attention/gradient_warpgroup.cl with PASS 2, the
// gradients of keys and values. Comes after attention/gradient_producer_warpgroup.cl.
//
// Each version of consume_columns adds ds^T q to `out` and dropout(p)^T dout to `out2`, for rows `row` and `row` + 8. The
// steps are those of all `heads` heads of queries, one head after another. With a causal mask, the warpgroup, whose keys begin
// at `first`, takes no part in steps whose queries see none of them. begin, steps: the first query, and the number of steps of a
// head. statistics: in local memory, see STATISTICS.
#if PASS == 2
#define IS_SEEN_BY(first, c0) (!CAUSAL || (c0) + TILE_C > (first))
// Statistics of the queries of step n, from the lane's first column on.
#define STEP_STATISTICS(n) ((__local const float2*)(statistics + STATISTICS(n)) + (get_local_id(0) & 3))
#if DROPOUT
#define NEXT_HEAD \
  NEXT_MASK_HEAD; \
  draws.queries_before += queries
#else
#define NEXT_HEAD NEXT_MASK_HEAD
#endif
#if HALVES
// Returns the first of the steps from `at` on of which the warpgroup sees a query, and releases the stages of those before.
// n: number of the step.
ALWAYS_INLINE Place seen_place(Place at, int* n, const Pipeline line, const int begin, const int first, const int steps,
                               const int heads SEEN_PARAMS) {
  for (; CAUSAL && at.head < heads && !IS_SEEN_BY(first, begin + at.step * TILE_C); ++*n) {
    skip_stages(line, 2 * *n, 2 * *n + 2);
    at = next_place(at, steps SEEN_PASS);
  }
  return at;
}
// The first products of a step are issued behind the last ones of the step before, so that the tensor cores are busy between
// steps. Behind the last step they are issued in vain: under a condition, each product would wait for the one before.
ALWAYS_INLINE int consume_columns(float* out, float* out2, const Pipeline line, __local const OPERAND_T* a_tile,
                                  __local const OPERAND_T* a2_tile, __local const float* statistics, const int row,
                                  const int first, int n, const int begin, const int steps, const int heads,
                                  const int queries, const int keys MASK_PARAMS DRAW_PARAMS SEEN_PARAMS) {
  Place next = seen_place(first_place(steps, heads SEEN_PASS), &n, line, begin, first, steps, heads SEEN_PASS);
  if (next.head >= heads) return n;
  float s[TILE_C / 2], grad[TILE_C / 2];
  uint held[TILE_C / 4], held2[TILE_C / 4];
  DECLARE_KEEP_BITS
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) {
    FENCE_REGISTER(out[i]);  // Zeros that are set while products run would make each of these wait for the last.
    FENCE_REGISTER(out2[i]);
  }
  __local const OPERAND_T *dout_tile = consumer_wait(line, 2 * n), *q_tile = consumer_wait(line, 2 * n + 1);
  begin_scores(s, a_tile, q_tile);
  int last = -1;
  for (int head = 0; next.head < heads;) {
    const int c0 = begin + next.step * TILE_C, shown = IS_SHOWN(next.step), step = n;
    for (; head < next.head; ++head) {
      NEXT_HEAD;
    }
    DRAW(keep_bits, row, c0);
    WAIT_SUMS(s, TILE_C / 2, "0");
    begin_scores(grad, a2_tile, dout_tile);
    if (last >= 0) {
      consumer_release(line, 2 * last);
      consumer_release(line, 2 * last + 1);
    }
    last = step;
    MASK_SCORES(s, row, first, c0, shown);
    softmax_weights(s, STEP_STATISTICS(step), 0);
#if DROPOUT
    float dropped[TILE_C / 2];
    OCL_UNROLL
    for (int i = 0; i < TILE_C / 2; ++i) dropped[i] = s[i];
    drop(dropped, keep_bits);
    to_operands(held2, dropped);
#else
    to_operands(held2, s);
#endif
    begin_values(out2, held2, dout_tile);
    WAIT_SUMS(grad, TILE_C / 2, "1");
    DROP_SCORES(grad, keep_bits);
    score_gradient(s, s, grad, STEP_STATISTICS(step), 0);
    to_operands(held, s);
    begin_values(out, held, q_tile);
    WAIT_SUMS(out2, DEPTH_TILE / 2, "1");  // frees the registers of held2
    ++n;
    next = seen_place(next_place(next, steps SEEN_PASS), &n, line, begin, first, steps, heads SEEN_PASS);
    if (next.head < heads) {
      dout_tile = consumer_wait(line, 2 * n);
      q_tile = consumer_wait(line, 2 * n + 1);
    }
    begin_scores(s, a_tile, q_tile);
  }
  WAIT_SUMS(out, DEPTH_TILE / 2, "0");
  consumer_release(line, 2 * last);
  consumer_release(line, 2 * last + 1);
  return n;
}
#else
// Adds the products of one step. n: its number, counted over all heads and tasks; c0: its first query; seen: 1 if the warpgroup
// takes part; shown: 1 if the mask hides no score of the step.
ALWAYS_INLINE void consume_step(float* out, float* out2, const Pipeline line, __local const OPERAND_T* a_tile,
                                __local const OPERAND_T* a2_tile, __local const float2* step_statistics, const int n,
                                const int c0, const int seen, const int shown, const int row, const int first,
                                const int queries, const int keys MASK_PARAMS DRAW_PARAMS) {
  if (!seen) {
    skip_stages(line, TILES * n, TILES * (n + 1));
    return;
  }
  float s[TILE_C / 2], grad[TILE_C / 2];
  DECLARE_KEEP_BITS
  DRAW(keep_bits, row, c0);
  multiply_scores(s, a_tile, consumer_wait(line, TILES * n));
  consumer_release(line, TILES * n);
  MASK_SCORES(s, row, first, c0, shown);
  softmax_weights(s, step_statistics, 0);
  multiply_scores(grad, a2_tile, consumer_wait(line, TILES * n + 2));
  consumer_release(line, TILES * n + 2);
  DROP_SCORES(grad, keep_bits);
  score_gradient(grad, s, grad, step_statistics, 0);
  DROP_SCORES(s, keep_bits);
  add_values(out, grad, consumer_wait(line, TILES * n + 1), queries - c0);
  consumer_release(line, TILES * n + 1);
  add_values(out2, s, consumer_wait(line, TILES * n + 3), queries - c0);
  consumer_release(line, TILES * n + 3);
}

ALWAYS_INLINE int consume_columns(float* out, float* out2, const Pipeline line, __local const OPERAND_T* a_tile,
                                  __local const OPERAND_T* a2_tile, __local const float* statistics, const int row,
                                  const int first, int n, const int begin, const int steps, const int heads,
                                  const int queries, const int keys MASK_PARAMS DRAW_PARAMS SEEN_PARAMS) {
  Place at = first_place(steps, heads SEEN_PASS);
  for (; at.head < heads; ++n) {
    const int c0 = begin + at.step * TILE_C, head = at.head;
    consume_step(out, out2, line, a_tile, a2_tile, STEP_STATISTICS(n), n, c0, IS_SEEN_BY(first, c0), IS_SHOWN(at.step),
                 row, first, queries, keys MASK_PASS DRAW_PASS);
    at = next_place(at, steps SEEN_PASS);
    if (at.head == head) continue;
    NEXT_HEAD;
  }
  return n;
}
#endif
#endif
