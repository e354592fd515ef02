// kernels/attention/subgroup_matrix.cl: attention by matrix instructions of a subgroup, without the matrix of scores in
// memory. Comes after attention/shared_subgroup_matrix.cl, which describes the fragments.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum      out = p v
//   sums = (row_max, row_sum): maximum of s, and sum of exp(s - row_max), over the keys
//
// Work-group (i, h, b) owns queries [i*TILE_M, (i+1)*TILE_M) of head h of batch b, which stay in local memory. In a step
// all work-items copy TILE_C keys and, turned, their values.
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 0. SCALE is positive. Store dimension d, VW 2
// or as many elements as 16 bytes have.
// Global size: (ceil(queries / TILE_M) * GROUP_SIZE, heads, batches), local size (GROUP_SIZE, 1, 1).

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) SUBGROUP_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local uint4 q_tile[TILE_M * DEPTH_ROW / CHUNK], k_tile[TILE_C * DEPTH_ROW / CHUNK], v_tile[TURNED];
  // Work-groups start in order, so the longest causal rows go first.
  const int tile = CAUSAL ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2);
  const int end = CAUSAL ? min(keys, r0 + TILE_M) : keys, steps = (end + TILE_C - 1) / TILE_C;
  const int first = r0 + sub_row();
  // number of steps with a key that some query of the subgroup sees
  const int visible_steps = CAUSAL ? min(steps, (first + SUB_M - 1) / TILE_C + 1) : steps;
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
  FragmentC out[ROW_FRAGS * DEPTH_FRAGS], s[ROW_FRAGS * COLUMN_FRAGS];
  float row_max[ROW_FRAGS], row_sum[ROW_FRAGS];
  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS * DEPTH_FRAGS; ++i) out[i] = (FragmentC)(0.0f);
  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS; ++i) row_max[i] = -INFINITY, row_sum[i] = 0.0f;

  stage_rows((__local OPERAND_T*)q_tile, q, q_row, queries - r0, DEPTH, TILE_M, direct);
  MARK_SEEN(head, queries, keys, 0, steps, 1);
  for (int step = 0; step < steps; ++step) {
    if (!IS_SEEN(step)) continue;
    const int key = step * TILE_C;
    barrier(CLK_LOCAL_MEM_FENCE);  // all have read the keys and values of the step before
    stage_rows((__local OPERAND_T*)k_tile, k + key * k_row, k_row, keys - key, DEPTH, TILE_C, direct);
    stage_turned((__local OPERAND_T*)v_tile, v + key * v_row, v_row, keys - key, WIDTH, direct);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (step >= visible_steps) continue;
    multiply_scores(s, (__local const OPERAND_T*)k_tile, (__local const OPERAND_T*)q_tile + sub_row() * DEPTH_ROW,
                    DEPTH);
    OCL_UNROLL
    for (int i = 0; i < ROW_FRAGS; ++i) {
      float* of = (float*)(s + i * COLUMN_FRAGS);
      const int row = first + i * FRAG_N + fragment_column();
      DRAW(keep_bits, row, key);
      MASK_SCORES(of, row, first, key, IS_SHOWN(step));
      const float rescale = softmax_step(of, row_max + i, row_sum + i);
      DROP_SCORES(of, keep_bits);
      OCL_UNROLL
      for (int d = 0; d < DEPTH_FRAGS; ++d) out[i * DEPTH_FRAGS + d] *= rescale;
    }
    add_weighted(out, s, (__local const OPERAND_T*)v_tile);
  }

  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS; ++i) {
    const int r = first + i * FRAG_N + fragment_column();
    const float sum = across_row(row_sum[i], 0), inverse = keys == 0 ? 0.0f : inverse_of(sum);
    if (r >= queries) continue;
    if (lane_id() < FRAG_N && sub_depth() == 0) {
      STORE1(row_max[i] == -INFINITY ? 0.0f : row_max[i] * SCORE_SCALE, 0, batch, head, r);
      STORE1(sum, 1, batch, head, r);
    }
    STORE_ROW(STOREV, STORE, out + i * DEPTH_FRAGS, r, WIDTH, inverse)
  }
}
