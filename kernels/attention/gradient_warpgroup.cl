// kernels/attention/gradient_warpgroup.cl: the gradients of attention on the matrix unit; pipeline of
// tensor_core/warpgroup.cl, parts of attention/shared_warpgroup.cl and
// attention/scores.cl.
//
//   s = SCALE q k^T + mask     p = exp(s - most) / total = 2^(s log2(e) - weight)     ds = p (dropout(dout v^T) -
//                                                                                     delta)     delta = sum over d of
//                                                                                     dout * out
//
//                        TILE_C columns a step         PASS  rows: a, a2   columns: b, b2   results
//                     +--------------+----             1     q, dout       k, v             y = SCALE ds k
//   consumer 0   64   | s, dout v^T: |                 2     k, v          q, dout          y = SCALE ds^T q, y1 =
//                     |              |                                     dropout(p)^T dout
//                     | registers    |  next step
//                     +--------------+                 A consumer's 64 rows of a step:
//   consumer 1   64   |              |                 s = a b^T, grad = a2 b2^T       unit: all from local memory
//                     +--------------+----             p, ds in registers              y1 += p b2, y += ds b   unit: p
//                                                                                      and ds from registers
//
// Group (i, h, b) owns rows [i*TILE_M, (i+1)*TILE_M) of head h of batch b, in local memory all the time. The producers
// bring b and b2 of a step as stages of the pipeline. With PASS 2 they also place `weight` and delta of a step's
// queries, whose loads are on their way a step ahead.
//   operands of 16 bits: b2, then b; a tile is [blocks of 64 of the depth][rows][64], which the unit reads with the
//   depth contiguous in the first products, with the
//   columns contiguous in the second ones
//   operands of 32 bits, split as in tensor_core/warpgroup.cl: the unit reads only what is contiguous along the sum.
//   What takes part in both kinds of products comes twice, a
//   stage each: by rows, two blocks of 32 of the depth, [TILE_C][32]; by columns, two blocks of 32 rows, [64][32]
//       PASS 1: b by rows, b by columns, b2 by rows        PASS 2: b by rows, b by columns, b2 by rows, b2 by columns
//   Scores are hidden and weighed before the second product, whose sums would need registers meanwhile.
//
// Arguments and hooks are those of attention/group.cl with PASS 1 and 2 but w and w2, which are b and b2 here. Store
// dimension d, VW = 2. Global size: (ceil(rows / TILE_M) * GROUP, heads of the rows, batches), local size (GROUP, 1,
// 1).
#ifndef KERNEL_NAME
#define KERNEL_NAME attention_gradient_warpgroup
#endif
#ifndef OVERLAP
#define OVERLAP 0  // PASS 1: a step's ds k is multiplied while the next ds is computed
#endif
#define TILES (HALVES ? 2 : PASS + 2)  // stages of a step
#define STEPS_HELD (STAGES / TILES + 2)  // steps whose statistics are in use at once
#define STATISTICS(n) ((n) % STEPS_HELD * 2 * TILE_C)  // of step n: [2][TILE_C]
// of a work-item of a consumer, of a producer (both consumers have more than a third); 0: all have as many
#ifndef REGISTERS
#define REGISTERS (!HALVES && TILE_M == 128 ? 216 : 0)
#define REGISTERS_LEFT 72
#endif
#ifndef STORE  // alone: dense outputs, one behind the other
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#define EPILOGUE_PASS , y, y_offset
#define Y_AT(b, h, r) ((((ulong)(b)) * get_num_groups(1) + (h)) * (ROWS_ARE_KEYS ? keys : queries) + (r))
#define Y1_OFFSET (y_offset + Y_AT(get_num_groups(2), 0, 0) * DEPTH)
#define STORE(acc, b, h, r, d) (y[y_offset + Y_AT(b, h, r) * DEPTH + (d)] = (acc))
#define STOREV(acc, b, h, r, d) vstore2(acc, 0, y + y_offset + Y_AT(b, h, r) * DEPTH + (d))
#define STORE1(acc, b, h, r, d) (y[Y1_OFFSET + Y_AT(b, h, r) * DEPTH2 + (d)] = (acc))
#define STORE1V(acc, b, h, r, d) vstore2(acc, 0, y + Y1_OFFSET + Y_AT(b, h, r) * DEPTH2 + (d))
#endif

// ---- producer ----
// Columns of one head: b2 and b of the first; heads: of queries, PASS 2.
typedef struct {
  __global const UNIT_T *b, *b2;
  long b_head, b_row, b2_head, b2_row;
  Statistics statistics;
  long sums_head, delta_head;
  int begin, columns, steps, heads;
} Columns;
#if PASS == 2
ALWAYS_INLINE float2 statistics_at(const Columns o, const int n) {
  const int p = get_local_id(0) - CONSUMERS * 128, head = n / o.steps, step = n % o.steps;
  if (p >= TILE_C || head >= o.heads) return (float2)(0.0f);
  const Statistics of = {o.statistics.sums + head * o.sums_head, o.statistics.delta + head * o.delta_head,
                         o.statistics.which, o.columns};
  return statistics_of(of, o.begin + step * TILE_C + p);
}
// Places what was loaded for step n; returns what comes next.
ALWAYS_INLINE float2 put_statistics(__local float* statistics, const Columns o, const int n, const float2 loaded) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  if (p < TILE_C) {
    statistics[STATISTICS(n) + p] = loaded.x;
    statistics[STATISTICS(n) + TILE_C + p] = loaded.y;
  }
  return statistics_at(o, n + 1);
}
#endif
#if HALVES
ALWAYS_INLINE void produce(const Pipeline line, const Columns o, __local float* statistics, const int direct) {
#if PASS == 2
  float2 next = o.steps > 0 ? statistics_at(o, 0) : (float2)(0.0f);
#endif
  for (int n = 0; n < o.heads * o.steps; ++n) {
    const int head = n / o.steps, c0 = o.begin + n % o.steps * TILE_C, left = o.columns - c0;
    __local UNIT_T* to = produce_begin(line, 2 * n);
#if PASS == 2
    next = put_statistics(statistics, o, n, next);
#endif
    stage_rows(to, o.b2 + head * o.b2_head + c0 * o.b2_row, o.b2_row, left, DEPTH2, TILE_C, direct);
    produce_end(line, 2 * n);
    stage_rows(produce_begin(line, 2 * n + 1), o.b + head * o.b_head + c0 * o.b_row, o.b_row, left, DEPTH, TILE_C,
               direct);
    produce_end(line, 2 * n + 1);
  }
  produce_rest(line, 2 * o.heads * o.steps);
}
#else
// A producer holds 4 x 4 blocks of a tile: of rows that are neighbours by columns (see add_values), 4 of the depth
// each. Of eight producers down the rows each begins with another of its four, so that what they store by rows meets
// different banks.
#define HELD (2 * B_CHUNKS)  // float4 of a tile that a producer holds
ALWAYS_INLINE int held_row(const int p, const int i) {
  const int quad = p & 7;
  return i / 4 * TILE_K + (quad >> 1) * 8 + ((i + (quad >> 1)) & 3) * 2 + (quad & 1);
}
ALWAYS_INLINE void fetch_tile(float4* held, int p, __global const float* from, const long stride, const int left,
                              const int depth, const int quads) {
  FRESH(p);
  const int d = value_column(p);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = held_row(p, i);
    held[i] = fetch_quad(from + row * stride + d, 1, row < left ? depth - d : 0, quads);
  }
}
ALWAYS_INLINE void put_rows(const Pipeline line, const int stage, int p, const float4* held) {
  __local float* to = produce_begin(line, stage);
  FRESH(p);
  const int d = value_column(p);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i)
    keep_row_quad(to + d / TILE_K * PARTS * B_ELEMENTS, held_row(p, i), d % TILE_K / 4, held[i]);
  produce_end(line, stage);
}
ALWAYS_INLINE void put_columns(const Pipeline line, const int stage, int p, const float4* held) {
  __local float* to = produce_begin(line, stage);
  FRESH(p);
  const int by1 = p >> 1 & 1, by2 = p >> 2 & 1;
  OCL_UNROLL
  for (int block = 0; block < 2; ++block) {
    const float4* x = held + 4 * block;
    const float4 y[4] = {by1 ? x[3] : x[0], by1 ? x[0] : x[1], by1 ? x[1] : x[2], by1 ? x[2] : x[3]};
    const float4 z[4] = {by2 ? y[2] : y[0], by2 ? y[3] : y[1], by2 ? y[0] : y[2], by2 ? y[1] : y[3]};
    keep_block(to + block * PARTS * B_ELEMENTS, value_column(p), p & 7, z);
  }
  produce_end(line, stage);
}
ALWAYS_INLINE void produce(const Pipeline line, const Columns o, __local float* statistics, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  float4 held[HELD];
#if PASS == 2
  float2 next = o.steps > 0 ? statistics_at(o, 0) : (float2)(0.0f);
#endif
  for (int n = 0; n < o.heads * o.steps; ++n) {
    const int head = n / o.steps, c0 = o.begin + n % o.steps * TILE_C, left = o.columns - c0;
    fetch_tile(held, p, o.b + head * o.b_head + c0 * o.b_row, o.b_row, left, DEPTH, quads);
#if PASS == 2
    // What the step's first stage held last was of a step that is over, so are the statistics of steps before.
    produce_begin(line, TILES * n);
    next = put_statistics(statistics, o, n, next);
#endif
    put_rows(line, TILES * n, p, held);
    put_columns(line, TILES * n + 1, p, held);
    fetch_tile(held, p, o.b2 + head * o.b2_head + c0 * o.b2_row, o.b2_row, left, DEPTH2, quads);
    put_rows(line, TILES * n + 2, p, held);
    if (PASS == 2) put_columns(line, TILES * n + 3, p, held);
  }
}
#endif

// ---- consumer ----
#define END(sums, count, but) \
  UNIT_WAIT(but);             \
  OCL_UNROLL                  \
  for (int i = 0; i < (count); ++i) READY((sums)[i])
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void KERNEL_NAME(
    __global const UNIT_T* a, const ulong a_offset, __global const UNIT_T* b, const ulong b_offset,
    __global const UNIT_T* a2, const ulong a2_offset, __global const UNIT_T* b2, const ulong b2_offset,
    __global const float* sums, const ulong sums_offset, __global const float* delta, const ulong delta_offset,
#if MASK
    __global const MASK_T* mask, const ulong mask_offset,
#endif
#if DROPOUT
    __global const long* state, const ulong state_offset,
#endif
    const int heads, const int group, const int queries, const int keys, const long a_batch, const long a_head,
    const long a_row, const long b_batch, const long b_head, const long b_row, const long a2_batch, const long a2_head,
    const long a2_row, const long b2_batch, const long b2_head, const long b2_row, const long sums_which,
    const long sums_batch, const long sums_head, const long delta_batch, const long delta_head
#if MASK
    ,
    const long mask_batch, const long mask_head, const long mask_query,
    const long mask_key
#endif
        EPILOGUE_PARAMS) {
  PIPELINE(line);
  __local UNIT_T a_tile[TILE_M * DEPTH_TILE] __attribute__((aligned(1024))),
      a2_tile[TILE_M * DEPTH_TILE] __attribute__((aligned(1024)));
  __local float statistics[PASS == 2 ? STATISTICS(STEPS_HELD - 1) + 2 * TILE_C : 2] __attribute__((aligned(8)));
  // The first group takes the longest rows.
  const int tile = CAUSAL && !ROWS_ARE_KEYS ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2);
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TILE_C * TILE_C : 0,
            end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + TILE_M) : columns;
  const int steps = max(end - begin + TILE_C - 1, 0) / TILE_C, column_heads = ROWS_ARE_KEYS ? group : 1;
  const int q_head = ROWS_ARE_KEYS ? head * group : head, column_head = ROWS_ARE_KEYS ? q_head : head / group;
  const Statistics of_queries = {sums + sums_offset + batch * sums_batch + q_head * sums_head,
                                 delta + delta_offset + batch * delta_batch + q_head * delta_head, sums_which, queries};
  if (get_local_id(0) >= CONSUMERS * 128) {
#if REGISTERS
    REGISTERS_LESS(REGISTERS_LEFT);
#endif
    a += a_offset + batch * a_batch + head * a_head + r0 * a_row;
    a2 += a2_offset + batch * a2_batch + head * a2_head + r0 * a2_row;
    const Columns o = {b + b_offset + batch * b_batch + column_head * b_head,
                       b2 + b2_offset + batch * b2_batch + column_head * b2_head,
                       b_head,
                       b_row,
                       b2_head,
                       b2_row,
                       of_queries,
                       sums_head,
                       delta_head,
                       begin,
                       columns,
                       steps,
                       column_heads};
    // The rows arrive with the first columns.
    if (DIRECT && CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset) && CHUNK_ALIGNED(a2_offset) &&
        CHUNK_ALIGNED(b2_offset)) {
      stage_rows(a_tile, a, a_row, rows - r0, DEPTH, TILE_M, 1);
      stage_rows(a2_tile, a2, a2_row, rows - r0, DEPTH2, TILE_M, 1);
      produce(line, o, statistics, 1);
    } else {
      stage_rows(a_tile, a, a_row, rows - r0, DEPTH, TILE_M, 0);
      stage_rows(a2_tile, a2, a2_row, rows - r0, DEPTH2, TILE_M, 0);
      produce(line, o, statistics, 0);
    }
    return;
  }
#if REGISTERS
  REGISTERS_MORE(REGISTERS);
#endif

  const int lane = get_local_id(0) & 31, row = r0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
  const int first = r0 + (get_local_id(0) >> 7) * 64;  // of the warpgroup's rows
  float out[DEPTH_TILE / 2], s[TILE_C / 2], grad[TILE_C / 2];
#if HALVES
  uint held[TILE_C / 4];
#endif
#if DROPOUT
  uint kept[TILE_C / 64];
  Draws draws = {state + state_offset, ((ulong)batch * heads + q_head) * queries, (ulong)((keys + 3) / 4)};
#endif
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out[i] = 0.0f;
#if MASK
  mask += mask_offset + batch * mask_batch + q_head * mask_head;
#endif
#if PASS == 1
  const float2 upper = statistics_of(of_queries, row), lower = statistics_of(of_queries, row + 8);
  const float of_rows[4] = {upper.x, lower.x, upper.y, lower.y};
  // steps with keys that the warpgroup's queries see
  const int own = CAUSAL ? min(steps, (first + 63) / TILE_C + 1) : steps;
#if !HALVES
  for (int step = 0; step < own; ++step) {
    DRAW(kept, row, step * TILE_C);
    multiply_scores(s, a_tile, arrived(line, TILES * step));
    leave(line, TILES * step);
    HIDE_SCORES(s, row, first, step * TILE_C);
    weigh(s, 0, of_rows);
    multiply_scores(grad, a2_tile, arrived(line, TILES * step + 2));
    leave(line, TILES * step + 2);
    DROP_SCORES(grad, kept);
    differ(s, s, grad, 0, of_rows);
    add_values(out, s, arrived(line, TILES * step + 1), keys - step * TILE_C);
    leave(line, TILES * step + 1);
  }
#elif OVERLAP
  // The products of a step's ds are multiplied behind the scores of the next: the unit is busy with these while the
  // next ds is computed.
  if (own > 0) {
    __local const UNIT_T *v_tile = arrived(line, 0), *k_before = arrived(line, 1);
    begin_scores(s, a_tile, k_before);
    begin_scores(grad, a2_tile, v_tile);
    DRAW(kept, row, 0);
    END(s, TILE_C / 2, "1");
    HIDE_SCORES(s, row, first, 0);
    weigh(s, 0, of_rows);
    END(grad, TILE_C / 2, "0");
    leave(line, 0);
    DROP_SCORES(grad, kept);
    differ(s, s, grad, 0, of_rows);
    hold(held, s);
    for (int step = 1; step < own; ++step) {
      v_tile = arrived(line, 2 * step);
      __local const UNIT_T* k_tile = arrived(line, 2 * step + 1);
      begin_scores(s, a_tile, k_tile);
      begin_scores(grad, a2_tile, v_tile);
      begin_values(out, held, k_before);
      DRAW(kept, row, step * TILE_C);
      END(s, TILE_C / 2, "2");
      HIDE_SCORES(s, row, first, step * TILE_C);
      weigh(s, 0, of_rows);
      END(grad, TILE_C / 2, "1");
      leave(line, 2 * step);
      DROP_SCORES(grad, kept);
      differ(s, s, grad, 0, of_rows);
      END(out, DEPTH_TILE / 2, "0");
      leave(line, 2 * step - 1);
      hold(held, s);
      k_before = k_tile;
    }
    begin_values(out, held, k_before);
    END(out, DEPTH_TILE / 2, "0");
    leave(line, 2 * own - 1);
  }
#else
  for (int step = 0; step < own; ++step) {
    __local const UNIT_T *v_tile = arrived(line, 2 * step), *k_tile = arrived(line, 2 * step + 1);
    begin_scores(s, a_tile, k_tile);
    begin_scores(grad, a2_tile, v_tile);
    DRAW(kept, row, step * TILE_C);
    END(s, TILE_C / 2, "1");
    HIDE_SCORES(s, row, first, step * TILE_C);
    weigh(s, 0, of_rows);
    END(grad, TILE_C / 2, "0");
    leave(line, 2 * step);
    DROP_SCORES(grad, kept);
    differ(s, s, grad, 0, of_rows);
    hold(held, s);
    begin_values(out, held, k_tile);
    END(out, DEPTH_TILE / 2, "0");
    leave(line, 2 * step + 1);
  }
#endif
  for (int step = TILES * own; step < TILES * steps; ++step) {
    arrived(line, step);
    leave(line, step);
  }
#else
  float out2[DEPTH_TILE / 2];
#if HALVES
  uint held2[TILE_C / 4];
#endif
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out2[i] = 0.0f;
  for (int n = 0; n < column_heads * steps; ++n) {
    // else no query of the step sees the warpgroup's keys
    const int c0 = begin + n % steps * TILE_C, seen = !CAUSAL || c0 + TILE_C > first;
    __local const float2* of_step = (__local const float2*)(statistics + STATISTICS(n)) + (lane & 3);
#if HALVES
    __local const UNIT_T *dout_tile = arrived(line, 2 * n), *q_tile = arrived(line, 2 * n + 1);
    if (seen) {
      begin_scores(s, a_tile, q_tile);
      begin_scores(grad, a2_tile, dout_tile);
      DRAW(kept, row, c0);
      END(s, TILE_C / 2, "1");
      HIDE_SCORES(s, row, first, c0);
      weigh(s, of_step, 0);
#if DROPOUT
      float dropped[TILE_C / 2];
      OCL_UNROLL
      for (int i = 0; i < TILE_C / 2; ++i) dropped[i] = s[i];
      drop(dropped, kept);
      hold(held2, dropped);
#else
      hold(held2, s);
#endif
      begin_values(out2, held2, dout_tile);
      END(grad, TILE_C / 2, "1");
      DROP_SCORES(grad, kept);
      differ(s, s, grad, of_step, 0);
      hold(held, s);
      begin_values(out, held, q_tile);
      END(out2, DEPTH_TILE / 2, "0");
      OCL_UNROLL
      for (int i = 0; i < DEPTH_TILE / 2; ++i) READY(out[i]);
    }
    leave(line, 2 * n);
    leave(line, 2 * n + 1);
#else
    if (seen) {
      DRAW(kept, row, c0);
      multiply_scores(s, a_tile, arrived(line, TILES * n));
      leave(line, TILES * n);
      HIDE_SCORES(s, row, first, c0);
      weigh(s, of_step, 0);
      multiply_scores(grad, a2_tile, arrived(line, TILES * n + 2));
      leave(line, TILES * n + 2);
      DROP_SCORES(grad, kept);
      differ(grad, s, grad, of_step, 0);
      DROP_SCORES(s, kept);
      add_values(out, grad, arrived(line, TILES * n + 1), queries - c0);
      leave(line, TILES * n + 1);
      add_values(out2, s, arrived(line, TILES * n + 3), queries - c0);
      leave(line, TILES * n + 3);
    } else {
      for (int stage = TILES * n; stage < TILES * (n + 1); ++stage) {
        arrived(line, stage);
        leave(line, stage);
      }
    }
#endif
#if MASK
    if (n % steps == steps - 1) mask += mask_head;
#endif
#if DROPOUT
    if (n % steps == steps - 1) draws.queries_before += queries;
#endif
  }
#endif

  STORE_GRADIENTS(out, out2, row);
}
