// kernels/attention/gradient_keys_warpgroup.cl: the consumers of attention/gradient_warpgroup.cl with PASS 2, the
// gradients of keys and values. Comes after attention/gradient_producer_warpgroup.cl.
//
// consume_step adds the products of one step to `out` (ds^T q) and `out2` (dropout(p)^T dout), for rows `row` and
// `row` + 8.
// n                number of the step, counted over all heads and tasks
// c0               first query of the step
// seen             1 if a query of the step sees a key of the warpgroup (causal mask); its keys begin at `first`
// shown            1 if the mask hides no score of the step
// step_statistics  statistics of the step's queries in local memory, from the lane's first column on
#if PASS == 2
#if HALVES
ALWAYS_INLINE void consume_step(float* out, float* out2, const Pipeline line, __local const OPERAND_T* a_tile,
                                __local const OPERAND_T* a2_tile, __local const float2* step_statistics, const int n,
                                const int c0, const int seen, const int shown, const int row, const int first,
                                const int queries, const int keys MASK_PARAMS DRAW_PARAMS) {
  __local const OPERAND_T *dout_tile = consumer_wait(line, 2 * n), *q_tile = consumer_wait(line, 2 * n + 1);
  if (seen) {
    float s[TILE_C / 2], grad[TILE_C / 2];
    uint held[TILE_C / 4], held2[TILE_C / 4];
    DECLARE_KEEP_BITS
    begin_scores(s, a_tile, q_tile);
    begin_scores(grad, a2_tile, dout_tile);
    DRAW(keep_bits, row, c0);
    WAIT_SUMS(s, TILE_C / 2, "1");
    MASK_SCORES(s, row, first, c0, shown);
    softmax_weights(s, step_statistics, 0);
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
    score_gradient(s, s, grad, step_statistics, 0);
    to_operands(held, s);
    begin_values(out, held, q_tile);
    WAIT_SUMS(out2, DEPTH_TILE / 2, "0");
    OCL_UNROLL
    for (int i = 0; i < DEPTH_TILE / 2; ++i) FENCE_REGISTER(out[i]);
  }
  consumer_release(line, 2 * n);
  consumer_release(line, 2 * n + 1);
}
#else
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
#endif

// The steps are those of all `heads` heads of queries, one head after another. begin, steps: the first query, and the number
// of steps of a head. statistics: the statistics in local memory, see STATISTICS.
ALWAYS_INLINE int consume_columns(float* out, float* out2, const Pipeline line, __local const OPERAND_T* a_tile,
                                  __local const OPERAND_T* a2_tile, __local const float* statistics, const int row,
                                  const int first, int n, const int begin, const int steps, const int heads,
                                  const int queries, const int keys MASK_PARAMS DRAW_PARAMS SEEN_PARAMS) {
  Place at = first_place(steps, heads SEEN_PASS);
  for (; at.head < heads; ++n) {
    const int c0 = begin + at.step * TILE_C, head = at.head;
    __local const float2* step_statistics = (__local const float2*)(statistics + STATISTICS(n)) + (get_local_id(0) & 3);
    consume_step(out, out2, line, a_tile, a2_tile, step_statistics, n, c0, !CAUSAL || c0 + TILE_C > first,
                 IS_SHOWN(at.step), row, first, queries, keys MASK_PASS DRAW_PASS);
    at = next_place(at, steps SEEN_PASS);
    if (at.head == head) continue;
    NEXT_MASK_HEAD;
#if DROPOUT
    draws.queries_before += queries;
#endif
  }
  return n;
}
#endif
