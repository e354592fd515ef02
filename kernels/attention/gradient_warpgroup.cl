// kernels/attention/gradient_warpgroup.cl: the gradients of attention on warpgroup tensor cores.
//
// This file has the kernel. Its producers are in attention/gradient_producer_warpgroup.cl, its consumers in
// attention/gradient_queries_warpgroup.cl (PASS 1) and attention/gradient_keys_warpgroup.cl (PASS 2). The pipeline is
// in tensor_core/warpgroup.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum = 2^(s log2(e) - lse)
//   ds = p (dropout(dout v^T) - delta)      delta = sum over d of dout * out
//
//   PASS  rows: a, a2   columns: b, b2   results
//   1     q, dout       k, v             y = SCALE ds k
//   2     k, v          q, dout          y = SCALE ds^T q, y1 = dropout(p)^T dout
//
//                        TILE_C columns per step
//                     +--------------+----         A consumer's 64 rows of a step:
//   consumer 0   64   | s, dout v^T: |               s = a b^T, grad = a2 b2^T    all operands from local memory
//                     | registers    | next step     p and ds                     in registers
//   consumer 1   64   |              |               y1 += p b2, y += ds b        p and ds from registers
//                     +--------------+----
//
// Work-group (i, h, b) owns rows [i*TILE_M, (i+1)*TILE_M) of head h of batch b. These rows stay in local memory all the
// time. The producers bring b and b2 of each step through the pipeline. With PASS 2 they also bring lse and delta of
// the step's queries.
//   operands of 16 bits: a step has two stages, b2 and then b. A tile is [blocks of 64 of the depth][rows][64]. The
//   first products (s, dout v^T) read it with the depth contiguous, the second ones with the columns contiguous.
//   operands of 32 bits, split as in tensor_core/warpgroup.cl: wgmma reads only what is contiguous along the sum. So an
//   operand that both kinds of products read is staged twice, in two stages: by rows (two blocks of 32 of the depth,
//   [TILE_C][32]) and by columns (two blocks of 32 rows, [64][32]). The stages of a step are
//       PASS 1: b by rows, b by columns, b2 by rows        PASS 2: b by rows, b by columns, b2 by rows, b2 by columns
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 1 and 2, without w and w2: b and b2 take
// their place. Store dimension d, VW = 2. Global size: (ceil(rows / TILE_M) * GROUP_SIZE, heads of the rows, batches),
// local size (GROUP_SIZE, 1, 1).

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  PIPELINE(line);
  __local OPERAND_T a_tile[TILE_M * DEPTH_TILE] __attribute__((aligned(1024))),
      a2_tile[TILE_M * DEPTH_TILE] __attribute__((aligned(1024)));
  __local float statistics[PASS == 2 ? STATISTICS(STEPS_HELD - 1) + 2 * TILE_C : 2] __attribute__((aligned(8)));
  // Work-groups start in order, so the longest causal rows go first.
  const int tile = CAUSAL && !ROWS_ARE_KEYS ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2);
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TILE_C * TILE_C : 0,
            end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + TILE_M) : columns;
  const int steps = max(end - begin + TILE_C - 1, 0) / TILE_C, column_heads = ROWS_ARE_KEYS ? heads_per_kv : 1;
  const int q_head = ROWS_ARE_KEYS ? head * heads_per_kv : head,
            column_head = ROWS_ARE_KEYS ? q_head : head / heads_per_kv;
  const QueryStatistics head_statistics = {sums + sums_offset + batch * sums_batch + q_head * sums_head,
                                           delta + delta_offset + batch * delta_batch + q_head * delta_head, sums_which,
                                           queries};
  const int produces = get_local_id(0) >= CONSUMERS * 128;
  const int direct = DIRECT && CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset) && CHUNK_ALIGNED(a2_offset) &&
                     CHUNK_ALIGNED(b2_offset);
  a += a_offset + batch * a_batch + head * a_head + r0 * a_row;
  a2 += a2_offset + batch * a2_batch + head * a2_head + r0 * a2_row;
  // These copies are published with the first columns, so the consumers' first wait covers both.
  if (produces && direct) {
    stage_rows(a_tile, a, a_row, rows - r0, DEPTH, TILE_M, 1);
    stage_rows(a2_tile, a2, a2_row, rows - r0, DEPTH2, TILE_M, 1);
  } else if (produces) {
    stage_rows(a_tile, a, a_row, rows - r0, DEPTH, TILE_M, 0);
    stage_rows(a2_tile, a2, a2_row, rows - r0, DEPTH2, TILE_M, 0);
  }
  MARK_SEEN(q_head, rows, columns, begin, steps, column_heads);
  if (produces) {
    PRODUCERS_BEGIN();
    const ColumnOperands o = {b + b_offset + batch * b_batch + column_head * b_head,
                              b2 + b2_offset + batch * b2_batch + column_head * b2_head,
                              b_head,
                              b_row,
                              b2_head,
                              b2_row,
                              head_statistics,
                              sums_head,
                              delta_head,
                              begin,
                              columns,
                              steps,
                              column_heads SEEN_PASS};
    if (direct)
      produce(line, o, statistics, 1);
    else
      produce(line, o, statistics, 0);
    return;
  }
  CONSUMERS_BEGIN();

  const int lane = get_local_id(0) & 31, row = r0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
  const int first = r0 + (get_local_id(0) >> 7) * 64;  // the warpgroup's first row
  float out[DEPTH_TILE / 2];
#if DROPOUT
  const Draws draws = {state + state_offset, ((ulong)batch * heads + q_head) * queries, (ulong)((keys + 3) / 4)};
#endif
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out[i] = 0.0f;
#if STORED_MASK
  mask += mask_offset + batch * mask_batch + q_head * mask_head;
#elif MASK
  int mask_head = q_head;
#endif
#if PASS == 1
  const float2 upper = load_statistics(head_statistics, row), lower = load_statistics(head_statistics, row + 8);
  const float row_statistics[4] = {upper.x, lower.x, upper.y, lower.y};
  // number of steps with a key that some query of the warpgroup sees
  const int visible_steps = CAUSAL ? min(steps, (first + 63) / TILE_C + 1) : steps;
  int n = consume_columns(out, line, a_tile, a2_tile, row_statistics, row, first, visible_steps, queries,
                          keys MASK_PASS DRAW_PASS SEEN_PASS);
  for (int step = seen_from(visible_steps, steps SEEN_PASS); step < steps;
       ++n, step = seen_from(step + 1, steps SEEN_PASS))
    skip_stages(line, TILES * n, TILES * (n + 1));
#else
  float out2[DEPTH_TILE / 2];
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out2[i] = 0.0f;
  consume_columns(out, out2, line, a_tile, a2_tile, statistics, row, first, begin, steps, column_heads, queries,
                  keys MASK_PASS DRAW_PASS SEEN_PASS);
#endif

  STORE_GRADIENTS(out, out2, row);
}
