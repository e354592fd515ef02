// kernels/attention/warpgroup.cl: attention on the matrix unit, without the matrix of scores in memory; the pipeline of
// tensor_core/warpgroup.cl, parts of attention/shared_warpgroup.cl
// and attention/scores.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - most) / total      out = p v      sums = (most, total): max and sum of
//                                                                             exp(s - most) over keys
//
//                        TILE_C keys a step
//                     +--------------+--------------+----     A consumer's 64 queries of a step:
//   consumer 0   64   | s: registers |              |         s = q k^T         unit: q and k from local memory
//                     +--------------+  next step   |         p = exp(s - most) in registers: a row lies in four lanes;
//                                                   |         the running maximum moves on
//   consumer 1   64   |              |              |         out = fade out + p v   unit: p from registers, which as
//                     |              |              |                                sums of s lie where the unit
//                     +--------------+--------------+----                            takes an operand from; v from
//                                                                                    local memory
//
// Group (i, h, b) owns queries [i*TILE_M, (i+1)*TILE_M) of head h of batch b. They lie in local memory all the time;
// the producers bring the keys of a step, then its values, each a stage of the pipeline.
//   operands of 16 bits: a tile is [blocks of 64 of the depth][rows][64]; the unit reads k with the depth contiguous, v
//   with the columns contiguous
//   operands of 32 bits: a tile is two blocks of 32 of the depth, [64][32], high part, then low part; v is transposed
//   on the way, [head size][keys]
// The unit takes p of 32 bits from another lane than the one that has it as a sum; instead the keys of v are permuted:
// position i of eight neighbours holds key 2i (i < 4) or 2(i - 4) + 1.
//
// Arguments and hooks are those of attention/group.cl with PASS 0; SCALE is positive. Store dimension d, VW = 2.
// Global size: (ceil(queries / TILE_M) * GROUP, heads, batches), local size (GROUP, 1, 1).
#ifndef KERNEL_NAME
#define KERNEL_NAME attention_warpgroup
#endif
#ifndef OVERLAP
#define OVERLAP HALVES  // 1: a step's values are multiplied while the softmax of the next runs; operands of 16 bits
#endif
#ifndef STORE  // alone: dense outputs, one behind the other
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#define EPILOGUE_PASS , y, y_offset
#define Y_AT(b, h, r) ((((ulong)(b)) * get_num_groups(1) + (h)) * queries + (r))
#define STORE(acc, b, h, r, d) (y[y_offset + Y_AT(b, h, r) * WIDTH + (d)] = (acc))
#define STOREV(acc, b, h, r, d) vstore2(acc, 0, y + y_offset + Y_AT(b, h, r) * WIDTH + (d))
#define STORE1(acc, which, b, h, r) \
  (y[y_offset + Y_AT(get_num_groups(2), 0, 0) * (WIDTH + (which)) + Y_AT(b, h, r)] = (acc))
#endif

// ---- producer ----
// What a producer knows of a group: the first key and value, and how many steps there are.
typedef struct {
  __global const UNIT_T *k, *v;
  long k_row, v_row;
  int keys, steps;
} Columns;

#if HALVES
ALWAYS_INLINE void produce(const Pipeline line, const Columns o, const int direct) {
  for (int step = 0; step < o.steps; ++step) {
    const int left = o.keys - step * TILE_C;
    stage_rows(produce_begin(line, 2 * step), o.k + step * TILE_C * o.k_row, o.k_row, left, DEPTH, TILE_C, direct);
    produce_end(line, 2 * step);
    stage_rows(produce_begin(line, 2 * step + 1), o.v + step * TILE_C * o.v_row, o.v_row, left, WIDTH, TILE_C, direct);
    produce_end(line, 2 * step + 1);
  }
  produce_rest(line, 2 * o.steps);
}
#else
#define HELD (2 * B_CHUNKS)  // float4 of a tile that a producer holds: two blocks
ALWAYS_INLINE void fetch_keys(float4* held, const Columns o, const int step, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = step * TILE_C + (p >> 3) + i % B_CHUNKS * ROWS_APART, d = i / B_CHUNKS * TILE_K + (p & 7) * 4;
    held[i] = fetch_quad(o.k + row * o.k_row + d, 1, row < o.keys ? DEPTH - d : 0, quads);
  }
}
ALWAYS_INLINE void fetch_values(float4* held, const Columns o, const int step, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128, quad = p & 7, column = value_column(p);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = step * TILE_C + i / 4 * TILE_K + (quad >> 1) * 8 + i % 4 * 2 + (quad & 1);  // the permutation
    held[i] = fetch_quad(o.v + row * o.v_row + column, 1, row < o.keys ? WIDTH - column : 0, quads);
  }
}
ALWAYS_INLINE void put_keys(const Pipeline line, const float4* held, const int step) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  __local float* to = produce_begin(line, 2 * step);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i)
    keep_row_quad(to + i / B_CHUNKS * PARTS * B_ELEMENTS, (p >> 3) + i % B_CHUNKS * ROWS_APART, p & 7, held[i]);
  produce_end(line, 2 * step);
}
ALWAYS_INLINE void put_values(const Pipeline line, const float4* held, const int step) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  __local float* to = produce_begin(line, 2 * step + 1);
  keep_block(to, value_column(p), p & 7, held);
  keep_block(to + PARTS * B_ELEMENTS, value_column(p), p & 7, held + 4);
  produce_end(line, 2 * step + 1);
}
// Keys and values of a step are fetched a step ahead.
ALWAYS_INLINE void produce(const Pipeline line, const Columns o, const int quads) {
  float4 keys[HELD], values[HELD];
  for (int step = 0; step <= o.steps; ++step) {
    if (step > 0) put_keys(line, keys, step - 1);
    if (step < o.steps) fetch_keys(keys, o, step, quads);
    if (step > 0) put_values(line, values, step - 1);
    if (step < o.steps) fetch_values(values, o, step, quads);
  }
}
#endif

// ---- consumer ----
#if HALVES
#define END_SCORES(but, step)                       \
  UNIT_WAIT(but);                                   \
  OCL_UNROLL                                        \
  for (int i = 0; i < TILE_C / 2; ++i) READY(s[i]); \
  leave(line, 2 * (step))
#define END_VALUES(step)                                  \
  UNIT_WAIT("0");                                         \
  OCL_UNROLL                                              \
  for (int i = 0; i < DEPTH_TILE / 2; ++i) READY(out[i]); \
  leave(line, 2 * (step) + 1)
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void KERNEL_NAME(
    __global const UNIT_T* q, const ulong q_offset, __global const UNIT_T* k, const ulong k_offset,
    __global const UNIT_T* v, const ulong v_offset,
#if MASK
    __global const MASK_T* mask, const ulong mask_offset,
#endif
#if DROPOUT
    __global const long* state, const ulong state_offset,
#endif
    const int heads, const int group, const int queries, const int keys, const long q_batch, const long q_head,
    const long q_row, const long k_batch, const long k_head, const long k_row, const long v_batch, const long v_head,
    const long v_row
#if MASK
    ,
    const long mask_batch, const long mask_head, const long mask_query,
    const long mask_key
#endif
        EPILOGUE_PARAMS) {
  PIPELINE(line);
  __local UNIT_T q_tile[TILE_M * DEPTH_TILE] __attribute__((aligned(1024)));
  // The first group takes the longest rows.
  const int tile = CAUSAL ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2);
  const int end = CAUSAL ? min(keys, r0 + TILE_M) : keys, steps = (end + TILE_C - 1) / TILE_C;
  if (get_local_id(0) >= CONSUMERS * 128) {
    q += q_offset + batch * q_batch + head * q_head + r0 * q_row;
    const Columns o = {k + k_offset + batch * k_batch + head / group * k_head,
                       v + v_offset + batch * v_batch + head / group * v_head,
                       k_row,
                       v_row,
                       keys,
                       steps};
    // q arrives with the first keys.
    if (DIRECT && CHUNK_ALIGNED(q_offset) && CHUNK_ALIGNED(k_offset) && CHUNK_ALIGNED(v_offset)) {
      stage_rows(q_tile, q, q_row, queries - r0, DEPTH, TILE_M, 1);
      produce(line, o, 1);
    } else {
      stage_rows(q_tile, q, q_row, queries - r0, DEPTH, TILE_M, 0);
      produce(line, o, 0);
    }
    return;
  }

  const int lane = get_local_id(0) & 31, row = r0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
  const int first = r0 + (get_local_id(0) >> 7) * 64;  // of the warpgroup's rows
  float out[DEPTH_TILE / 2], top[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out[i] = 0.0f;
#if MASK
  mask += mask_offset + batch * mask_batch + head * mask_head;
#endif
  // steps with keys that the warpgroup's queries see
  const int own = CAUSAL ? min(steps, (first + 63) / TILE_C + 1) : steps;
  float s[TILE_C / 2], fade[2];
#if DROPOUT
  uint kept[TILE_C / 64];
  const Draws draws = {state + state_offset, ((ulong)batch * heads + head) * queries, (ulong)((keys + 3) / 4)};
#endif
#if HALVES
  uint p[TILE_C / 4];
#endif
#if OVERLAP
  // A step's scores are multiplied before the values of the step before: the unit is busy with these while the softmax
  // runs.
  if (own > 0) {
    begin_scores(s, q_tile, arrived(line, 0));
    DRAW(kept, row, 0);
    END_SCORES("0", 0);
    HIDE_SCORES(s, row, first, 0);
    weigh(s, top, total, fade);
    DROP_SCORES(s, kept);
    hold(p, s);
    for (int step = 1; step < own; ++step) {
      __local const UNIT_T *v_tile = arrived(line, 2 * step - 1), *k_tile = arrived(line, 2 * step);
      begin_scores(s, q_tile, k_tile);
      begin_values(out, p, v_tile);
      DRAW(kept, row, step * TILE_C);
      END_SCORES("1", step);
      HIDE_SCORES(s, row, first, step * TILE_C);
      weigh(s, top, total, fade);
      DROP_SCORES(s, kept);
      END_VALUES(step - 1);
      fade_rows(out, fade);
      hold(p, s);
    }
    begin_values(out, p, arrived(line, 2 * own - 1));
    END_VALUES(own - 1);
  }
#else
  for (int step = 0; step < own; ++step) {
    __local const UNIT_T* k_tile = arrived(line, 2 * step);
#if HALVES
    begin_scores(s, q_tile, k_tile);
    DRAW(kept, row, step * TILE_C);
    END_SCORES("0", step);
#else
    DRAW(kept, row, step * TILE_C);
    multiply_scores(s, q_tile, k_tile);
    leave(line, 2 * step);
#endif
    HIDE_SCORES(s, row, first, step * TILE_C);
    weigh(s, top, total, fade);
    DROP_SCORES(s, kept);
    fade_rows(out, fade);
    __local const UNIT_T* v_tile = arrived(line, 2 * step + 1);
#if HALVES
    hold(p, s);
    begin_values(out, p, v_tile);
    END_VALUES(step);
#else
    add_values(out, s, v_tile, keys - step * TILE_C);
    leave(line, 2 * step + 1);
#endif
  }
#endif
  for (int step = 2 * own; step < 2 * steps; ++step) {
    arrived(line, step);
    leave(line, step);
  }

  STORE_ATTENTION(out, top, total, row);
}
