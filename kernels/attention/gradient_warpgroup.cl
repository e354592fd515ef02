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
// A task is TILE_M rows of a head. Work-groups are persistent, as in attention/warpgroup.cl. The rows of a task stay in
// local memory until it ends. The producers bring b and b2 of each step through the pipeline. With PASS 2 they also
// bring lse and delta of the step's queries.
//   operands of 16 bits: a step has two stages, b2 and then b. A tile is [blocks of 64 of the depth][rows][64]. The
//   first products (s, dout v^T) read it with the depth contiguous, the second ones with the columns contiguous.
//   operands of 32 bits, split as in tensor_core/warpgroup.cl: wgmma reads only what is contiguous along the sum. So an
//   operand that both kinds of products read is staged twice, in two stages: by rows (two blocks of 32 of the depth,
//   [TILE_C][32]) and by columns (two blocks of 32 rows, [64][32]). The stages of a step are
//       PASS 1: b by rows, b by columns, b2 by rows        PASS 2: b by rows, b by columns, b2 by rows, b2 by columns
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 1 and 2, without w and w2: b and b2 take
// their place. Store dimension d. Global and local size are those of attention/warpgroup.cl.

// A task, the heads of its operands, and its columns: the first one, and the number of steps of a head.
typedef struct {
  int r0, head, batch, q_head, column_head, begin, steps;
} GradientTask;
ALWAYS_INLINE GradientTask gradient_task(const int n, const Tasks tasks, const int heads_per_kv, const int columns) {
  const Task task = task_at(n, tasks);
  const int r0 = task.rows, q_head = ROWS_ARE_KEYS ? task.head * heads_per_kv : task.head;
  const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TILE_C * TILE_C : 0,
            end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + TILE_M) : columns;
  const GradientTask of = {r0,
                           task.head,
                           task.batch,
                           q_head,
                           ROWS_ARE_KEYS ? q_head : task.head / heads_per_kv,
                           begin,
                           max(end - begin + TILE_C - 1, 0) / TILE_C};
  return of;
}

#define A_TILE (TILE_M * DEPTH_TILE)  // elements
// The statistics of the queries of a task's first head.
#define STATISTICS_OF(of)                                    \
  {sums + (of).batch * sums_batch + (of).q_head * sums_head, \
   delta + (of).batch * delta_batch + (of).q_head * delta_head, sums_which, queries}
// Copies the rows of a task to one of the buffers. The copies are published with the first columns, so the consumers'
// first wait covers them.
#define STAGE_ROWS(of, buffer, direct)                                                                              \
  {                                                                                                                 \
    stage_rows(a_tiles + (buffer) * A_TILE, a + (of).batch * a_batch + (of).head * a_head + (of).r0 * a_row, a_row, \
               rows - (of).r0, DEPTH, TILE_M, direct);                                                              \
    stage_rows(a2_tiles + (buffer) * A_TILE, a2 + (of).batch * a2_batch + (of).head * a2_head + (of).r0 * a2_row,   \
               a2_row, rows - (of).r0, DEPTH2, TILE_M, direct);                                                     \
  }

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  PIPELINE(line);
  __local OPERAND_T a_tiles[HELD_TILES * A_TILE] __attribute__((aligned(1024))),
      a2_tiles[HELD_TILES * A_TILE] __attribute__((aligned(1024)));
  __local float statistics[PASS == 2 ? STATISTICS(STEPS_HELD - 1) + 2 * TILE_C : 2] __attribute__((aligned(8)));
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int column_heads = ROWS_ARE_KEYS ? heads_per_kv : 1;
  const Tasks tasks = {(rows + TILE_M - 1) / TILE_M, ROWS_ARE_KEYS ? heads / heads_per_kv : heads, batches};
  const int produces = get_local_id(0) >= CONSUMERS * 128;
  const int direct = DIRECT && CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset) && CHUNK_ALIGNED(a2_offset) &&
                     CHUNK_ALIGNED(b2_offset);
  a += a_offset;
  a2 += a2_offset;
  sums += sums_offset;
  delta += delta_offset;
#if BLOCKS
  // The rows are on their way while the work-group marks the steps of its only task.
  const GradientTask only = gradient_task(0, tasks, heads_per_kv, columns);
  const int r0 = only.r0, batch = only.batch;
  if (produces && direct)
    STAGE_ROWS(only, 0, 1)
  else if (produces)
    STAGE_ROWS(only, 0, 0)
  MARK_SEEN(only.q_head, rows, columns, only.begin, only.steps, column_heads);
#endif
  if (produces) {
    PRODUCERS_BEGIN();
    // numbers of the steps taken, and of the tasks that have steps
    int n = 0, held = 0;
    FOR_TASKS(i, tasks) {
      const GradientTask of = gradient_task(i, tasks, heads_per_kv, columns);
      if (of.steps == 0) continue;
      const ColumnOperands o = {b + b_offset + of.batch * b_batch + of.column_head * b_head,
                                b2 + b2_offset + of.batch * b2_batch + of.column_head * b2_head,
                                b_head,
                                b_row,
                                b2_head,
                                b2_row,
                                STATISTICS_OF(of),
                                sums_head,
                                delta_head,
                                of.begin,
                                columns,
                                of.steps,
                                column_heads};
      const int buffer = BLOCKS ? 0 : acquire_rows(line, held++);
      if (direct) {
        if (!BLOCKS) STAGE_ROWS(of, buffer, 1)
        n = produce(line, o, statistics, n, 1 SEEN_PASS);
      } else {
        if (!BLOCKS) STAGE_ROWS(of, buffer, 0)
        n = produce(line, o, statistics, n, 0 SEEN_PASS);
      }
    }
#if HALVES
    producer_finish(line, TILES * n);
#endif
    return;
  }
  CONSUMERS_BEGIN();

  const int lane = get_local_id(0) & 31;
#if STORED_MASK
  __global const MASK_T* const masks = mask + mask_offset;
#endif
  int n = 0, held = 0;
  FOR_TASKS(i, tasks) {
    const GradientTask of = gradient_task(i, tasks, heads_per_kv, columns);
    const int head = of.head, batch = of.batch, steps = of.steps;
    const int row = of.r0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
    const int first = of.r0 + warpgroup_number() * 64;  // the warpgroup's first row
    __local const OPERAND_T *a_tile = a_tiles + held % HELD_TILES * A_TILE,
                            *a2_tile = a2_tiles + held % HELD_TILES * A_TILE;
    float out[DEPTH_TILE / 2];
#if DROPOUT
    const Draws draws = {state + state_offset, ((ulong)batch * heads + of.q_head) * queries, (ulong)((keys + 3) / 4)};
#endif
    OCL_UNROLL
    for (int j = 0; j < DEPTH_TILE / 2; ++j) out[j] = 0.0f;
#if STORED_MASK
    mask = masks + batch * mask_batch + of.q_head * mask_head;
#elif MASK
    int mask_head = of.q_head;
#endif
#if PASS == 1
    const QueryStatistics head_statistics = STATISTICS_OF(of);
    const float2 upper = load_statistics(head_statistics, row), lower = load_statistics(head_statistics, row + 8);
    const float row_statistics[4] = {upper.x, lower.x, upper.y, lower.y};
    // number of steps with a key that some query of the warpgroup sees
    const int visible_steps = CAUSAL ? min(steps, (first + 63) / TILE_C + 1) : steps;
    n = consume_columns(out, line, a_tile, a2_tile, row_statistics, row, first, n, visible_steps, queries,
                        keys MASK_PASS DRAW_PASS SEEN_PASS);
    for (int step = seen_from(visible_steps, steps SEEN_PASS); step < steps;
         ++n, step = seen_from(step + 1, steps SEEN_PASS))
      skip_stages(line, TILES * n, TILES * (n + 1));
#else
    float out2[DEPTH_TILE / 2];
    OCL_UNROLL
    for (int j = 0; j < DEPTH_TILE / 2; ++j) out2[j] = 0.0f;
    n = consume_columns(out, out2, line, a_tile, a2_tile, statistics, row, first, n, of.begin, steps, column_heads,
                        queries, keys MASK_PASS DRAW_PASS SEEN_PASS);
#endif
    if (!BLOCKS && steps > 0) release_rows(line, held++);
    STORE_GRADIENTS(out, out2, row);
  }
}
