// kernels/attention/warp.cl: attention on warp tensor cores, without the matrix of scores in memory. Comes after
// tensor_core/warp.cl, attention/scores.cl and attention/shared_warp.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum      out = p v
//   sums = (row_max, row_sum): maximum of s, and sum of exp(s - row_max), over the keys
//
//                        TILE_C keys per step
//                     +--------------+----         A warp's WARP_M queries of a step:
//   warp 0    WARP_M  | s: registers |               s = q k^T                    q and k from local memory
//                     +--------------+ next step     p = exp(s - row_max)         in registers; four lanes share a row
//   warp 1    WARP_M  |              |               out = rescale out + p v      p from registers, v from local memory
//                     +--------------+----
//
// Work-group (i, h, b) owns queries [i*TILE_M, (i+1)*TILE_M) of head h of batch b, which stay in local memory. The
// tiles of keys and values go through a ring of STAGES buffers: tile 2 * step has the keys of a step, tile 2 * step + 1
// its values. All work-items copy tile n + STAGES - 1 (cp.async) while the warps work on tile n. There is one barrier
// per tile.
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 0. SCALE is positive. Store dimension d.
// Global size: (ceil(queries / TILE_M) * GROUP_SIZE, heads, batches), local size (GROUP_SIZE, 1, 1).
// The address of tile n in the ring: the keys of the n / 2th step that is taken if n is even, its values if n is odd.
#define KV_TILE(n) (ring + (n) % STAGES * TILE_ELEMENTS)
#define COPY_KV_TILE(n)                                                                  \
  {                                                                                      \
    const int key = copied * TILE_C;                                                     \
    if ((n) % 2 == 0) {                                                                  \
      stage_rows(KV_TILE(n), k + key * k_row, k_row, keys - key, DEPTH, TILE_C, direct); \
    } else {                                                                             \
      stage_rows(KV_TILE(n), v + key * v_row, v_row, keys - key, WIDTH, TILE_C, direct); \
      copied = seen_from(copied + 1, steps SEEN_PASS);                                   \
    }                                                                                    \
  }
// Waits for tile n, and begins to copy tile n + STAGES - 1 into the buffer of tile n - 1, which all work-items have
// read.
#define NEXT_KV_TILE(n)                                \
  {                                                    \
    WAIT_COPIES(STAGES - 2);                           \
    barrier(CLK_LOCAL_MEM_FENCE);                      \
    if (copied < steps) COPY_KV_TILE((n) + STAGES - 1) \
    commit_copies();                                   \
  }

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local OPERAND_T ring[STAGES * TILE_ELEMENTS] __attribute__((aligned(128)));
  __local OPERAND_T q_tile[TILE_M * DEPTH_BLOCKS * TILE_K] __attribute__((aligned(128)));
  // Work-groups start in order, so the longest causal rows go first.
  const int tile = CAUSAL ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2), lane = get_local_id(0) & 31;
  const int end = CAUSAL ? min(keys, r0 + TILE_M) : keys, steps = (end + TILE_C - 1) / TILE_C;
  const int warp_row0 = (get_local_id(0) >> 5) * WARP_M, first = r0 + warp_row0;
  // number of steps with a key that some query of the warp sees
  const int visible_steps = CAUSAL ? min(steps, (first + WARP_M - 1) / TILE_C + 1) : steps;
  const int direct = DIRECT && CHUNK_ALIGNED(q_offset) && CHUNK_ALIGNED(k_offset) && CHUNK_ALIGNED(v_offset);
  q += q_offset + batch * q_batch + head * q_head + r0 * q_row;
  k += k_offset + batch * k_batch + head / heads_per_kv * k_head;
  v += v_offset + batch * v_batch + head / heads_per_kv * v_head;
#if STORED_MASK
  mask += mask_offset + batch * mask_batch + head * mask_head;
#elif MASK
  int mask_head = head;
#endif
#if DROPOUT
  uint keep_bits[KEEP_WORDS];
  const Draws draws = {state + state_offset, ((ulong)batch * heads + head) * queries, (ulong)((keys + 3) / 4)};
#endif
  float out[ROW_BLOCKS * DEPTH_TILE / 2], row_max[2 * ROW_BLOCKS], row_sum[2 * ROW_BLOCKS], s[ROW_BLOCKS * TILE_C / 2];
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * DEPTH_TILE / 2; ++i) out[i] = 0.0f;
  OCL_UNROLL
  for (int i = 0; i < 2 * ROW_BLOCKS; ++i) row_max[i] = -INFINITY, row_sum[i] = 0.0f;

  MARK_SEEN(head, queries, keys, 0, steps, 1);
  int copied = seen_from(0, steps SEEN_PASS);  // the step of the next tile to copy
  stage_rows(q_tile, q, q_row, queries - r0, DEPTH, TILE_M, direct);  // in the same cp.async group as the first keys
  OCL_UNROLL
  for (int n = 0; n < STAGES - 1; ++n) {
    if (copied < steps) COPY_KV_TILE(n)
    commit_copies();
  }
  for (int n = 0, step = seen_from(0, steps SEEN_PASS); step < steps;
       ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
    NEXT_KV_TILE(2 * n)
    if (step < visible_steps) {
      multiply_scores(s, q_tile + warp_row0 * TILE_K, KV_TILE(2 * n), DEPTH);
      OCL_UNROLL
      for (int i = 0; i < ROW_BLOCKS; ++i) {
        float *of = s + i * (TILE_C / 2), rescale[2];
        const int row = first + 16 * i + (lane >> 2);
        DRAW(keep_bits, row, step * TILE_C);
        MASK_SCORES(of, row, first + 16 * i, step * TILE_C, IS_SHOWN(step));
        softmax_step(of, row_max + 2 * i, row_sum + 2 * i, rescale);
        DROP_SCORES(of, keep_bits);
        rescale_rows(out + i * (DEPTH_TILE / 2), rescale);
      }
    }
    NEXT_KV_TILE(2 * n + 1)
    if (step < visible_steps) add_values(out, s, KV_TILE(2 * n + 1), WIDTH);
  }

  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS; ++i)
    STORE_ATTENTION(out + i * (DEPTH_TILE / 2), row_max + 2 * i, row_sum + 2 * i, first + 16 * i + (lane >> 2));
}
