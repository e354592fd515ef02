// kernels/attention/gradient_subgroup_matrix.cl: the gradients of attention by matrix instructions of a subgroup. Comes
// after attention/shared_subgroup_matrix.cl, which describes the fragments.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum = 2^(s log2(e) - lse)
//   ds = p (dropout(dout v^T) - delta)      delta = sum over d of dout * out
//
//   PASS  rows: a, a2   columns: b, b2   results
//   1     q, dout       k, v             y = SCALE ds k
//   2     k, v          q, dout          y = SCALE ds^T q, y1 = dropout(p)^T dout
//
// Work-group (i, h, b) owns rows [i*TILE_M, (i+1)*TILE_M) of head h of batch b, which stay in local memory. In a step all
// work-items copy TILE_C rows of b and b2, for the scores and, turned, for the results.
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 1 and 2, without w and w2: b and b2 take
// their place. Store dimension d, VW 2 or as many elements as 16 bytes have.
// Global size: (ceil(rows / TILE_M) * GROUP_SIZE, heads of the rows, batches), local size (GROUP_SIZE, 1, 1).
#define TILE(name) ((__local OPERAND_T*)name##_tile)
#if PASS == 2
#define IN_PASS_2(code) code
#define STATISTICS(i, row_fragment) statistics[sub_column() + score_column(i)]
#else
#define IN_PASS_2(code)
#define STATISTICS(i, row_fragment) statistics[row_fragment]
#endif
#if SHARED
#define WEIGHTS(name, fragments) TILE(name) + sub_row() * COLUMN_ROW
#else
#define WEIGHTS(name, fragments) fragments
#endif
#if !TRANSPOSES
#define b_turned_tile b_tile
#define b2_turned_tile b2_tile
#endif

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) SUBGROUP_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local uint4 a_tile[TILE_M * DEPTH_ROW / CHUNK], a2_tile[TILE_M * DEPTH_ROW / CHUNK],
      b_tile[TILE_C * DEPTH_ROW / CHUNK], b2_tile[TILE_C * DEPTH_ROW / CHUNK];
#if TRANSPOSES
  __local uint4 b_turned_tile[TURNED];
  IN_PASS_2(__local uint4 b2_turned_tile[TURNED];)
#endif
#if SHARED
  __local uint4 ds_tile[TILE_M * COLUMN_ROW / CHUNK];
  IN_PASS_2(__local uint4 p_tile[TILE_M * COLUMN_ROW / CHUNK];)
#endif
  IN_PASS_2(__local float2 statistics[TILE_C];)  // lse and delta of the step's queries
  // Work-groups start in order, so the longest causal rows go first.
  const int tile = CAUSAL && !ROWS_ARE_KEYS ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2), first = r0 + sub_row();
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TILE_C * TILE_C : 0,
            end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + TILE_M) : columns;
  const int q_head = ROWS_ARE_KEYS ? head * heads_per_kv : head,
            column_head = ROWS_ARE_KEYS ? q_head : head / heads_per_kv;
  const int direct = DIRECT && CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset) && CHUNK_ALIGNED(a2_offset) &&
                     CHUNK_ALIGNED(b2_offset);
  QueryStatistics of_head = {sums + sums_offset + batch * sums_batch + q_head * sums_head,
                             delta + delta_offset + batch * delta_batch + q_head * delta_head, sums_which, queries};
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
  FragmentC out[ROW_FRAGS * DEPTH_FRAGS], s[ROW_FRAGS * COLUMN_FRAGS], grad[ROW_FRAGS * COLUMN_FRAGS];
  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS * DEPTH_FRAGS; ++i) out[i] = (FragmentC)(0.0f);
#if PASS == 2
  FragmentC out2[ROW_FRAGS * DEPTH_FRAGS];
  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS * DEPTH_FRAGS; ++i) out2[i] = (FragmentC)(0.0f);
#else
  float2 statistics[ROW_FRAGS];
  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS; ++i) statistics[i] = load_statistics(of_head, first + i * FRAG_N + fragment_column());
#endif

  stage_rows(TILE(a), a + a_offset + batch * a_batch + head * a_head + r0 * a_row, a_row, rows - r0, DEPTH, TILE_M,
             direct);
  stage_rows(TILE(a2), a2 + a2_offset + batch * a2_batch + head * a2_head + r0 * a2_row, a2_row, rows - r0, DEPTH2,
             TILE_M, direct);
  MARK_SEEN(q_head, rows, columns, begin, (end - begin + TILE_C - 1) / TILE_C, ROWS_ARE_KEYS ? heads_per_kv : 1);
  for (int of = 0; of < (ROWS_ARE_KEYS ? heads_per_kv : 1); ++of) {
    for (int c0 = begin; c0 < end; c0 += TILE_C) {
      if (!IS_SEEN((c0 - begin) / TILE_C)) continue;
      barrier(CLK_LOCAL_MEM_FENCE);  // all have read the tiles of the step before
      stage_rows(TILE(b), b + c0 * b_row, b_row, columns - c0, DEPTH, TILE_C, direct);
      stage_rows(TILE(b2), b2 + c0 * b2_row, b2_row, columns - c0, DEPTH2, TILE_C, direct);
#if TRANSPOSES
      stage_turned(TILE(b_turned), b + c0 * b_row, b_row, columns - c0, DEPTH, direct);
      IN_PASS_2(stage_turned(TILE(b2_turned), b2 + c0 * b2_row, b2_row, columns - c0, DEPTH2, direct);)
#endif
#if PASS == 2
      for (int i = get_local_id(0); i < TILE_C; i += GROUP_SIZE) statistics[i] = load_statistics(of_head, c0 + i);
#endif
      barrier(CLK_LOCAL_MEM_FENCE);
      // with a causal mask: only if some query sees some key in this step
      const int visible = !CAUSAL || (ROWS_ARE_KEYS ? c0 + TILE_C > first : c0 < first + SUB_M);
      if (!SHARED && !visible) continue;
      if (visible) {
        const int c = c0 + sub_column();
        multiply_scores(s, TILE(b) + sub_column() * DEPTH_ROW, TILE(a) + sub_row() * DEPTH_ROW, DEPTH);
        multiply_scores(grad, TILE(b2) + sub_column() * DEPTH_ROW, TILE(a2) + sub_row() * DEPTH_ROW, DEPTH2);
        OCL_UNROLL
        for (int r = 0; r < ROW_FRAGS; ++r) {
          float *p = (float*)(s + r * COLUMN_FRAGS), *ds = (float*)(grad + r * COLUMN_FRAGS);
          const int row = first + r * FRAG_N + fragment_column();
          DRAW(keep_bits, row, c);
          MASK_SCORES(p, row, first, c, IS_SHOWN((c0 - begin) / TILE_C));
          DROP_SCORES(ds, keep_bits);
          OCL_UNROLL
          for (int i = 0; i < SCORES; ++i) {
            const float2 of_query = STATISTICS(i, r);
            p[i] = exp2_of(fma(p[i], TO_LOG2, -of_query.x));
            ds[i] = p[i] * (ds[i] - of_query.y);
          }
          IN_PASS_2(DROP_SCORES(p, keep_bits);)
        }
#if SHARED
        share_weights(TILE(ds), grad);
        IN_PASS_2(share_weights(TILE(p), s);)
      }
      barrier(CLK_LOCAL_MEM_FENCE);  // all parts of the weights are there
      if (visible) {
#endif
        IN_PASS_2(add_weighted(out2, WEIGHTS(p, s), TILE(b2_turned));)
        add_weighted(out, WEIGHTS(ds, grad), TILE(b_turned));
      }
    }
#if PASS == 2  // the next head of queries
    b += b_head;
    b2 += b2_head;
    of_head.sums += sums_head;
    of_head.delta += delta_head;
    NEXT_MASK_HEAD;
#if DROPOUT
    draws.queries_before += queries;
#endif
#endif
  }

  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS; ++i) {
    const int r = first + i * FRAG_N + fragment_column();
    if (r >= rows) continue;
    STORE_ROW(STOREV, STORE, out + i * DEPTH_FRAGS, r, DEPTH, SCALE)
    IN_PASS_2(STORE_ROW(STORE1V, STORE1, out2 + i * DEPTH_FRAGS, r, DEPTH2, 1.0f))
  }
}
