// kernels/attention/gradient_queries_warpgroup.cl: the consumers of attention/gradient_warpgroup.cl with PASS 1, the
// gradient of queries. Comes after attention/gradient_producer_warpgroup.cl.
//
// Each version of consume_columns adds ds k to `out`, over those of the first `steps` steps that are taken, for rows
// `row` and `row` + 8. With a causal mask, no query of the warpgroup sees a key of later
// steps. first: the warpgroup's first row. row_statistics: lse of the two rows, then delta of the two.
#if PASS == 1
#if !HALVES
ALWAYS_INLINE int consume_columns(float* out, const Pipeline line, __local const OPERAND_T* a_tile,
                                  __local const OPERAND_T* a2_tile, const float* row_statistics, const int row,
                                  const int first, int n, const int steps, const int queries,
                                  const int keys MASK_PARAMS DRAW_PARAMS SEEN_PARAMS) {
  float s[TILE_C / 2], grad[TILE_C / 2];
  DECLARE_KEEP_BITS
  for (int step = seen_from(0, steps SEEN_PASS); step < steps; ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
    DRAW(keep_bits, row, step * TILE_C);
    multiply_scores(s, a_tile, consumer_wait(line, TILES * n));
    consumer_release(line, TILES * n);
    MASK_SCORES(s, row, first, step * TILE_C, IS_SHOWN(step));
    softmax_weights(s, 0, row_statistics);
    multiply_scores(grad, a2_tile, consumer_wait(line, TILES * n + 2));
    consumer_release(line, TILES * n + 2);
    DROP_SCORES(grad, keep_bits);
    score_gradient(s, s, grad, 0, row_statistics);
    add_values(out, s, consumer_wait(line, TILES * n + 1), keys - step * TILE_C);
    consumer_release(line, TILES * n + 1);
  }
  return n;
}
#elif OVERLAP
// The products ds k of a step are issued after the products for the scores of the next step. So the tensor cores are
// busy while the next ds is computed.
ALWAYS_INLINE int consume_columns(float* out, const Pipeline line, __local const OPERAND_T* a_tile,
                                  __local const OPERAND_T* a2_tile, const float* row_statistics, const int row,
                                  const int first, int n, const int steps, const int queries,
                                  const int keys MASK_PARAMS DRAW_PARAMS SEEN_PARAMS) {
  float s[TILE_C / 2], grad[TILE_C / 2];
  uint held[TILE_C / 4];
  DECLARE_KEEP_BITS
  int step = seen_from(0, steps SEEN_PASS);
  if (step >= steps) return n;
  __local const OPERAND_T *v_tile = consumer_wait(line, 2 * n), *k_before = consumer_wait(line, 2 * n + 1);
  begin_scores(s, a_tile, k_before);
  begin_scores(grad, a2_tile, v_tile);
  DRAW(keep_bits, row, step * TILE_C);
  WAIT_SUMS(s, TILE_C / 2, "1");
  MASK_SCORES(s, row, first, step * TILE_C, IS_SHOWN(step));
  softmax_weights(s, 0, row_statistics);
  WAIT_SUMS(grad, TILE_C / 2, "0");
  consumer_release(line, 2 * n);
  DROP_SCORES(grad, keep_bits);
  score_gradient(s, s, grad, 0, row_statistics);
  to_operands(held, s);
  for (++n, step = seen_from(step + 1, steps SEEN_PASS); step < steps;
       ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
    v_tile = consumer_wait(line, 2 * n);
    __local const OPERAND_T* k_tile = consumer_wait(line, 2 * n + 1);
    begin_scores(s, a_tile, k_tile);
    begin_scores(grad, a2_tile, v_tile);
    begin_values(out, held, k_before);
    DRAW(keep_bits, row, step * TILE_C);
    WAIT_SUMS(s, TILE_C / 2, "2");
    MASK_SCORES(s, row, first, step * TILE_C, IS_SHOWN(step));
    softmax_weights(s, 0, row_statistics);
    WAIT_SUMS(grad, TILE_C / 2, "1");
    consumer_release(line, 2 * n);
    DROP_SCORES(grad, keep_bits);
    score_gradient(s, s, grad, 0, row_statistics);
    WAIT_SUMS(out, DEPTH_TILE / 2, "0");
    consumer_release(line, 2 * n - 1);
    to_operands(held, s);
    k_before = k_tile;
  }
  begin_values(out, held, k_before);
  WAIT_SUMS(out, DEPTH_TILE / 2, "0");
  consumer_release(line, 2 * n - 1);
  return n;
}
#else
ALWAYS_INLINE int consume_columns(float* out, const Pipeline line, __local const OPERAND_T* a_tile,
                                  __local const OPERAND_T* a2_tile, const float* row_statistics, const int row,
                                  const int first, int n, const int steps, const int queries,
                                  const int keys MASK_PARAMS DRAW_PARAMS SEEN_PARAMS) {
  float s[TILE_C / 2], grad[TILE_C / 2];
  uint held[TILE_C / 4];
  DECLARE_KEEP_BITS
  for (int step = seen_from(0, steps SEEN_PASS); step < steps; ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
    __local const OPERAND_T *v_tile = consumer_wait(line, 2 * n), *k_tile = consumer_wait(line, 2 * n + 1);
    begin_scores(s, a_tile, k_tile);
    begin_scores(grad, a2_tile, v_tile);
    DRAW(keep_bits, row, step * TILE_C);
    WAIT_SUMS(s, TILE_C / 2, "1");
    MASK_SCORES(s, row, first, step * TILE_C, IS_SHOWN(step));
    softmax_weights(s, 0, row_statistics);
    WAIT_SUMS(grad, TILE_C / 2, "0");
    consumer_release(line, 2 * n);
    DROP_SCORES(grad, keep_bits);
    score_gradient(s, s, grad, 0, row_statistics);
    to_operands(held, s);
    begin_values(out, held, k_tile);
    WAIT_SUMS(out, DEPTH_TILE / 2, "0");
    consumer_release(line, 2 * n + 1);
  }
  return n;
}
#endif
#endif
