// kernels/attention_mma.cl: attention on the matrix unit of a warp, without the matrix of scores in memory; instructions of mma.cl, parts of
// attention_scores.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - most) / total      out = p v      sums = (most, total): max and sum of exp(s - most) over keys
//
//                        TILE_C keys a step
//                     +--------------+--------------+----     A warp's WARP_M queries of a step:
//   warp 0    WARP_M  | s: registers |              |         s = q k^T         q and k from local memory
//                     +--------------+  next step   |         p = exp(s - most) in registers: a row lies in four lanes; the running maximum moves on
//   warp 1    WARP_M  |              |              |         out = fade out + p v   p from registers, v from local memory
//                     +--------------+--------------+----
//
// Group (i, h, b) owns queries [i*TILE_M, (i+1)*TILE_M) of head h of batch b. They lie in local memory all the time; the keys of a step and its values are
// an item each of a ring of STAGES buffers: all work-items copy the item STAGES - 1 ahead (cp.async) while their warps work on one; a barrier an item.
// A tile in local memory is [blocks of 128 bytes of the depth][rows][TILE_K], as mma.cl's operands with contiguous depth.
//   operands of 16 bits: sums of s are where the unit takes p from; values are transposed on their way to registers
//   operands of 32 bits: the unit takes p from another lane than the one that has it as a sum; instead the keys are permuted: position i of eight
//   neighbours holds key 2i (i < 4) or 2(i - 4) + 1. Values are read by elements.
//
// Arguments and hooks are those of attention_group.cl with PASS 0; SCALE is positive. Store dimension d, VW = 2.
// Global size: (ceil(queries / TILE_M) * GROUP, heads, batches), local size (GROUP, 1, 1).
#ifndef KERNEL_NAME
#define KERNEL_NAME attention_mma
#endif
// TILE_C, keys of a step: TILE_N and WARP_N, 64 or 128
// DEPTH_TILE, sums of a query's row: the larger head size, filled up to a multiple of 32
#ifndef STORE               // alone: dense outputs, one behind the other
#define EPILOGUE_PARAMS , __global float* y, const ulong y_offset
#define Y_AT(b, h, r) ((((ulong)(b)) * get_num_groups(1) + (h)) * queries + (r))
#define STORE(acc, b, h, r, d) (y[y_offset + Y_AT(b, h, r) * WIDTH + (d)] = (acc))
#define STOREV(acc, b, h, r, d) vstore2(acc, 0, y + y_offset + Y_AT(b, h, r) * WIDTH + (d))
#define STORE1(acc, which, b, h, r) (y[y_offset + Y_AT(get_num_groups(2), 0, 0) * (WIDTH + (which)) + Y_AT(b, h, r)] = (acc))
#endif
#define ROW_BLOCKS (WARP_M / 16)                            // of a warp
#define DEPTH_BLOCKS ((DEPTH_TILE + TILE_K - 1) / TILE_K)  // of a row in local memory
#define ITEM_ELEMENTS (TILE_C * DEPTH_BLOCKS * TILE_K)

// Where a row's chunk lies in a tile.
ALWAYS_INLINE int tile_chunk(const int row, const int chunk, const int rows) { return (chunk >> 3) * rows * TILE_K + row_chunk(row, chunk & 7); }

// A tile of an operand as it lies in memory, `left` of its rows and `depth` of each inside.
ALWAYS_INLINE void stage_rows(__local UNIT_T* to, __global const UNIT_T* from, const long stride, const int left, const int depth, const int rows,
                              const int direct) {
  int p = get_local_id(0);
  FRESH(p);
  const int chunk = p & 7;
  OCL_UNROLL
  for (int block = 0; block < DEPTH_BLOCKS; ++block) {
    const int d = block * TILE_K + chunk * CHUNK;
    if (direct) {
      OCL_UNROLL
      for (int i = 0; i < rows * 8 / GROUP; ++i) {
        const int row = (p >> 3) + i * (GROUP / 8), valid = row < left ? depth - d : 0;
        stage_chunk(to + tile_chunk(row, block * 8 + chunk, rows), valid > 0 ? from + row * stride + d : from, 1, valid, 1);
      }
    } else {
      OCL_NO_UNROLL
      for (int row = p >> 3; row < rows; row += GROUP / 8)
        stage_chunk(to + tile_chunk(row, block * 8 + chunk, rows), from + row * stride + d, 1, row < left ? depth - d : 0, 0);
    }
  }
}

// s = q k^T, [block of 16 rows][TILE_C / 2] as in attention_scores.cl; q: the warp's rows of the group's tile.
ALWAYS_INLINE void multiply_scores(float* s, __local const UNIT_T* q, __local const UNIT_T* k) {
  int lane = get_local_id(0) & 31;
  FRESH(lane);
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * TILE_C / 2; ++i) s[i] = 0.0f;
  UNROLL_DEPTH
  for (int at = 0; at < (DEPTH + 2 * CHUNK - 1) / (2 * CHUNK); ++at) {
    uint a_high[4 * ROW_BLOCKS], a_low[4 * ROW_BLOCKS];
    OCL_UNROLL
    for (int i = 0; i < ROW_BLOCKS; ++i) {
      read_rows(a_high + 4 * i, local_address(q + tile_chunk(16 * i + (lane & 15), 2 * at + (lane >> 4), TILE_M)));
      split(a_high + 4 * i, a_low + 4 * i);
    }
    OCL_UNROLL
    for (int j = 0; j < TILE_C / 32; ++j) {
      uint b_high[8], b_low[8];
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        read_rows(b_high + 4 * i, local_address(k + tile_chunk(32 * j + 16 * i + (lane & 7) + (lane >> 4) * 8, 2 * at + ((lane >> 3) & 1), TILE_C)));
        split(b_high + 4 * i, b_low + 4 * i);
      }
      OCL_UNROLL
      for (int i = 0; i < ROW_BLOCKS; ++i) add_products(s + i * (TILE_C / 2) + 16 * j, a_high + 4 * i, a_low + 4 * i, b_high, b_low, 32);
    }
  }
}

// What the unit takes of p for block `at` of keys, two chunks, from the sums of 16 rows.
ALWAYS_INLINE void hold(uint* x, const float* p, const int at) {
#if HALVES
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = two_halves(p[8 * at + 2 * i], p[8 * at + 2 * i + 1]);
#else
  x[0] = as_uint(p[4 * at]);
  x[1] = as_uint(p[4 * at + 2]);
  x[2] = as_uint(p[4 * at + 1]);
  x[3] = as_uint(p[4 * at + 3]);
#endif
}
// And of 16 columns of the values, from `column` on.
ALWAYS_INLINE void read_values(uint* x, __local const UNIT_T* v, const int lane, const int column, const int at) {
#if HALVES
  read_columns(x, local_address(v + tile_chunk(at * 16 + (lane & 15), column / CHUNK + (lane >> 4), TILE_C)));
#else
  const int key = at * 8 + (lane & 3) * 2, d = column + (lane >> 2);
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = as_uint((float)v[tile_chunk(key + (i & 1), d / CHUNK + (i >> 1) * 2, TILE_C) + d % CHUNK]);
#endif
}
// out += p v, [block of 16 rows][DEPTH_TILE / 2].
ALWAYS_INLINE void add_values(float* out, const float* p, __local const UNIT_T* v) {
  int lane = get_local_id(0) & 31;
  FRESH(lane);
  OCL_UNROLL
  for (int at = 0; at < TILE_C / (2 * CHUNK); ++at) {
    uint a_high[4 * ROW_BLOCKS], a_low[4 * ROW_BLOCKS];
    OCL_UNROLL
    for (int i = 0; i < ROW_BLOCKS; ++i) {
      hold(a_high + 4 * i, p + i * (TILE_C / 2), at);
      split(a_high + 4 * i, a_low + 4 * i);
    }
    OCL_UNROLL
    for (int j = 0; j < (WIDTH + 31) / 32; ++j) {
      uint b_high[8], b_low[8];
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        read_values(b_high + 4 * i, v, lane, 32 * j + 16 * i, at);
        split(b_high + 4 * i, b_low + 4 * i);
      }
      OCL_UNROLL
      for (int i = 0; i < ROW_BLOCKS; ++i) add_products(out + i * (DEPTH_TILE / 2) + 16 * j, a_high + 4 * i, a_low + 4 * i, b_high, b_low, 32);
    }
  }
}

// Item 2 * step, the step's keys, or 2 * step + 1, its values.
#define ITEM(item) (ring + (item) % STAGES * ITEM_ELEMENTS)
#define STAGE_ITEM(item)                                                                                                   \
  {                                                                                                                        \
    const int key = (item) / 2 * TILE_C;                                                                                   \
    if ((item) % 2 == 0) stage_rows(ITEM(item), k + key * k_row, k_row, keys - key, DEPTH, TILE_C, direct);                \
    else stage_rows(ITEM(item), v + key * v_row, v_row, keys - key, WIDTH, TILE_C, direct);                                \
  }
// Waits for an item, and copies the one STAGES - 1 further to where the item before was, which all have left.
#define ARRIVE(item)                                                        \
  {                                                                         \
    COPIES_WAIT(STAGES - 2);                                                \
    barrier(CLK_LOCAL_MEM_FENCE);                                           \
    if ((item) + STAGES - 1 < 2 * steps) STAGE_ITEM((item) + STAGES - 1)    \
    copies_end();                                                           \
  }

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void KERNEL_NAME(
    __global const UNIT_T* q, const ulong q_offset, __global const UNIT_T* k, const ulong k_offset, __global const UNIT_T* v, const ulong v_offset,
#if MASK
    __global const MASK_T* mask, const ulong mask_offset,
#endif
#if DROPOUT
    __global const long* state, const ulong state_offset,
#endif
    const int heads, const int group, const int queries, const int keys,
    const long q_batch, const long q_head, const long q_row, const long k_batch, const long k_head, const long k_row,
    const long v_batch, const long v_head, const long v_row
#if MASK
    , const long mask_batch, const long mask_head, const long mask_query, const long mask_key
#endif
    EPILOGUE_PARAMS) {
  __local UNIT_T ring[STAGES * ITEM_ELEMENTS] __attribute__((aligned(128)));
  __local UNIT_T q_tile[TILE_M * DEPTH_BLOCKS * TILE_K] __attribute__((aligned(128)));
  // The first group takes the longest rows.
  const int tile = CAUSAL ? get_num_groups(0) - 1 - get_group_id(0) : get_group_id(0);
  const int r0 = tile * TILE_M, head = get_group_id(1), batch = get_group_id(2), lane = get_local_id(0) & 31;
  const int end = CAUSAL ? min(keys, r0 + TILE_M) : keys, steps = (end + TILE_C - 1) / TILE_C;
  const int own_rows = (get_local_id(0) >> 5) * WARP_M, first = r0 + own_rows;
  const int own = CAUSAL ? min(steps, (first + WARP_M - 1) / TILE_C + 1) : steps;  // steps with keys that the warp's queries see
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
      multiply_scores(s, q_tile + own_rows * TILE_K, ITEM(2 * step));
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
    if (step < own) add_values(out, s, ITEM(2 * step + 1));
  }

  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS; ++i) STORE_ATTENTION(out + i * (DEPTH_TILE / 2), top + 2 * i, total + 2 * i, first + 16 * i + (lane >> 2));
}
