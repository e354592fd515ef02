// kernels/attention/warp.cl: attention on warp tensor cores, without the matrix of scores in memory;
// instructions of tensor_core/warp.cl, parts of
// attention/scores.cl and attention/shared_warp.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - most) / total      out = p v      sums = (most, total): max and sum of
//                                                                             exp(s - most) over keys
//
//                        TILE_C keys a step
//                     +--------------+--------------+----     A warp's WARP_M queries of a step:
//   warp 0    WARP_M  | s: registers |              |         s = q k^T         q and k from local memory
//                     +--------------+  next step   |         p = exp(s - most) in registers: a row lies in four lanes;
//                                                   |         the running maximum moves on
//   warp 1    WARP_M  |              |              |         out = fade out + p v   p from registers, v from local
//                     |              |              |                                memory
//                     +--------------+--------------+----
//
// Group (i, h, b) owns queries [i*TILE_M, (i+1)*TILE_M) of head h of batch b. They lie in local memory all the time;
// the keys of a step and its values are an item each of a ring of STAGES buffers: all work-items copy the item STAGES -
// 1 ahead (cp.async) while their warps work on one; a barrier an item.
//
// Arguments and hooks are those of attention/group.cl with PASS 0; SCALE is positive. Store dimension d, VW = 2.
// Global size: (ceil(queries / TILE_M) * GROUP, heads, batches), local size (GROUP, 1, 1).
#ifndef KERNEL_NAME
#define KERNEL_NAME attention_warp
#endif
#ifndef STORE  // alone: dense outputs, one behind the other
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#define Y_AT(b, h, r) ((((ulong)(b)) * get_num_groups(1) + (h)) * queries + (r))
#define STORE(acc, b, h, r, d) (y[y_offset + Y_AT(b, h, r) * WIDTH + (d)] = (acc))
#define STOREV(acc, b, h, r, d) vstore2(acc, 0, y + y_offset + Y_AT(b, h, r) * WIDTH + (d))
#define STORE1(acc, which, b, h, r) \
  (y[y_offset + Y_AT(get_num_groups(2), 0, 0) * (WIDTH + (which)) + Y_AT(b, h, r)] = (acc))
#endif
// Item 2 * step, the step's keys, or 2 * step + 1, its values.
#define ITEM(item) (ring + (item) % STAGES * ITEM_ELEMENTS)
#define STAGE_ITEM(item)                                                                 \
  {                                                                                      \
    const int key = (item) / 2 * TILE_C;                                                 \
    if ((item) % 2 == 0)                                                                 \
      stage_rows(ITEM(item), k + key * k_row, k_row, keys - key, DEPTH, TILE_C, direct); \
    else                                                                                 \
      stage_rows(ITEM(item), v + key * v_row, v_row, keys - key, WIDTH, TILE_C, direct); \
  }
// Waits for an item, and copies the one STAGES - 1 further to where the item before was, which all have left.
#define ARRIVE(item)                                                     \
  {                                                                      \
    COPIES_WAIT(STAGES - 2);                                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                        \
    if ((item) + STAGES - 1 < 2 * steps) STAGE_ITEM((item) + STAGES - 1) \
    copies_end();                                                        \
  }

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
  __local UNIT_T ring[STAGES * ITEM_ELEMENTS] __attribute__((aligned(128)));
  __local UNIT_T q_tile[TILE_M * DEPTH_BLOCKS * TILE_K] __attribute__((aligned(128)));
  // The first group takes the longest rows.
  const int tile = CAUSAL ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2), lane = get_local_id(0) & 31;
  const int end = CAUSAL ? min(keys, r0 + TILE_M) : keys, steps = (end + TILE_C - 1) / TILE_C;
  const int own_rows = (get_local_id(0) >> 5) * WARP_M, first = r0 + own_rows;
  // steps with keys that the warp's queries see
  const int own = CAUSAL ? min(steps, (first + WARP_M - 1) / TILE_C + 1) : steps;
  const int direct = DIRECT && CHUNK_ALIGNED(q_offset) && CHUNK_ALIGNED(k_offset) && CHUNK_ALIGNED(v_offset);
  q += q_offset + batch * q_batch + head * q_head + r0 * q_row;
  k += k_offset + batch * k_batch + head / group * k_head;
  v += v_offset + batch * v_batch + head / group * v_head;
#if MASK
  mask += mask_offset + batch * mask_batch + head * mask_head;
#endif
#if DROPOUT
  uint kept[TILE_C / 64];
  const Draws draws = {state + state_offset, ((ulong)batch * heads + head) * queries, (ulong)((keys + 3) / 4)};
#endif
  float out[ROW_BLOCKS * DEPTH_TILE / 2], top[2 * ROW_BLOCKS], total[2 * ROW_BLOCKS], s[ROW_BLOCKS * TILE_C / 2];
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * DEPTH_TILE / 2; ++i) out[i] = 0.0f;
  OCL_UNROLL
  for (int i = 0; i < 2 * ROW_BLOCKS; ++i) top[i] = -INFINITY, total[i] = 0.0f;

  stage_rows(q_tile, q, q_row, queries - r0, DEPTH, TILE_M, direct);  // arrives with the first keys
  OCL_UNROLL
  for (int item = 0; item < STAGES - 1; ++item) {
    if (item < 2 * steps) STAGE_ITEM(item)
    copies_end();
  }
  for (int step = 0; step < steps; ++step) {
    ARRIVE(2 * step)
    if (step < own) {
      multiply_scores(s, q_tile + own_rows * TILE_K, ITEM(2 * step), DEPTH);
      OCL_UNROLL
      for (int i = 0; i < ROW_BLOCKS; ++i) {
        float *of = s + i * (TILE_C / 2), fade[2];
        const int row = first + 16 * i + (lane >> 2);
        DRAW(kept, row, step * TILE_C);
        HIDE_SCORES(of, row, first + 16 * i, step * TILE_C);
        weigh(of, top + 2 * i, total + 2 * i, fade);
        DROP_SCORES(of, kept);
        fade_rows(out + i * (DEPTH_TILE / 2), fade);
      }
    }
    ARRIVE(2 * step + 1)
    if (step < own) add_values(out, s, ITEM(2 * step + 1), WIDTH);
  }

  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS; ++i)
    STORE_ATTENTION(out + i * (DEPTH_TILE / 2), top + 2 * i, total + 2 * i, first + 16 * i + (lane >> 2));
}
