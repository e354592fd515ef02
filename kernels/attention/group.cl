// kernels/attention/group.cl: attention and its gradients without the matrix of scores in memory. Group kernel: one
// work-group = TILE_R rows.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum      out = dropout(p) v
//   sums = (row_max, row_sum): maximum of s, and sum of exp(s - row_max), over the keys
//   ds = p * (dropout(dout v^T) - delta), delta = sum over d of dout * out
//
//   PASS  rows     columns  result
//   0     queries  keys     out = dropout(p) v, and sums (softmax with a running maximum)
//   1     queries  keys     dq = SCALE ds k
//   2     keys     queries  dk = SCALE ds^T q, dv = dropout(p)^T dout
//
//                 TILE_C columns per step
//             +--------------+----
//   TILE_R    | t: 4x4 a     |  next step
//   rows      | work-item    |
//             +--------------+----
//
// Work-group (i, h, b) owns rows [i*TILE_R, (i+1)*TILE_R) of head h of batch b, and goes through all columns. In a step
// both operands of the scores are staged in local memory, STEP elements of the depth at a time, and each work-item
// computes 4x4 scores in registers. These become p (or ds) and are stored, transposed, in local memory (p_tile). Then
// they are multiplied by rows of w, CHUNK floats of a row at a time. Each work-item adds up 4 rows x 4 columns of a
// chunk.
//
// Inputs: (pointer, offset) pairs, offsets and strides in elements. Their type is IN_T unless another type is given.
// They are contiguous along the last dimension.
//   a   rows of the scores: q, q, k          b   columns of the scores: k, k, q          DEPTH floats
//   w   rows that p or ds multiplies: v, k, q      WIDTH floats
//   PASS 1, 2:  a2 rows: dout, v   b2 columns: v, dout (DEPTH2 floats)   sums float [2][batch][head][query], delta
//                                                                        float [batch][head][query] by strides,
//                                                                        contiguous queries
//   PASS 2:     w2 rows that p multiplies: dout (WIDTH2 floats)
//   MASK:       mask by mask_batch, mask_head, mask_query, mask_key
//   DROPOUT:    state long[2] = (seed, offset)
// Arguments: inputs, int heads (of q), heads_per_kv (heads of q per head of k and v), queries, keys, long strides
// (batch, head, row) of a, b, w, ... Global size: (ceil(rows / TILE_R) * GROUP_SIZE, heads of the rows, batches), local
// size (GROUP_SIZE, 1, 1). Epilogue macros: STORE(acc, b, h, row, d), STOREV (4 along d); PASS 0: STORE1(sum, which, b,
// h, row); PASS 2: STORE1, STORE1V for dv.
#ifndef KERNEL_NAME
#define KERNEL_NAME attention_group
#endif
#ifndef TILE_R
#define TILE_R 64  // rows of a group: 64 or 32
#endif
#define TILE_C 64  // columns of a step
#ifndef STEP
#define STEP 16  // depth staged at a time: 16, or 8 where local memory is small
#endif
#define CHUNK 64  // floats of an output row that are computed at a time
#define ACROSS (TILE_C / 4)
#define DOWN (TILE_R / 4)
#define GROUP_SIZE (ACROSS * DOWN)  // work-items: 256 or 128
#ifndef QUADS
#define QUADS 0  // 1: all sizes and strides of rows are multiples of 4 elements
#endif
#define Y_VSTORE(v, p) vstore4(v, 0, p)
#define CHUNKS(width) (((width) + CHUNK - 1) / CHUNK)

// The local memory of a work-group, and the work-item's position in the tiles.
typedef struct {
  __local float* a_tile;  // [STEP][TILE_R + TILE_PAD]
  __local float* b_tile;  // [STEP][TILE_C + TILE_PAD], also [STEP][CHUNK + TILE_PAD]
  __local float* p_tile;  // [TILE_C][TILE_R + TILE_PAD]
  int lane;
  int2 item;
} GroupTiles;

// Writes t[i] = row 4*item.y + i of a, times rows 4*item.x + 0..3 of b. Rows outside the matrices count as zeros.
ALWAYS_INLINE void multiply_scores(float4* t, const GroupTiles at, __global const IN_T* a, const long a_row,
                                   const int rows_left, __global const IN_T* b, const long b_row,
                                   const int columns_left, const int depth, const int aligned) {
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) t[i] = (float4)(0.0f);
  OCL_NO_UNROLL
  for (int d = 0; d < depth; d += STEP) {
    float4 a_held[(TILE_R * STEP / 4 + GROUP_SIZE - 1) / GROUP_SIZE],
        b_held[(TILE_C * STEP / 4 + GROUP_SIZE - 1) / GROUP_SIZE];
    tile_fetch(a_held, a + d, a_row, 1, rows_left, depth - d, at.lane, GROUP_SIZE, TILE_R, STEP, 1, QUADS, aligned);
    tile_fetch(b_held, b + d, b_row, 1, columns_left, depth - d, at.lane, GROUP_SIZE, TILE_C, STEP, 1, QUADS, aligned);
    barrier(CLK_LOCAL_MEM_FENCE);  // all have read the tiles of the previous depth
    tile_keep(at.a_tile, a_held, at.lane, GROUP_SIZE, TILE_R, STEP, 1, QUADS);
    tile_keep(at.b_tile, b_held, at.lane, GROUP_SIZE, TILE_C, STEP, 1, QUADS);
    barrier(CLK_LOCAL_MEM_FENCE);  // both tiles are complete
    tile_multiply(t, at.a_tile, at.b_tile, at.item, ACROSS, DOWN, STEP, 4, 4);
  }
}

// Stores the work-item's 4x4 scores (or p, or ds) t in p_tile, transposed.
ALWAYS_INLINE void keep_scores(const GroupTiles at, const float4* t) {
  __local float* to = at.p_tile + 4 * at.item.x * (TILE_R + TILE_PAD) + 4 * at.item.y;
  const int row = TILE_R + TILE_PAD;
  *(__local float4*)to = (float4)(t[0].x, t[1].x, t[2].x, t[3].x);
  *(__local float4*)(to + row) = (float4)(t[0].y, t[1].y, t[2].y, t[3].y);
  *(__local float4*)(to + 2 * row) = (float4)(t[0].z, t[1].z, t[2].z, t[3].z);
  *(__local float4*)(to + 3 * row) = (float4)(t[0].w, t[1].w, t[2].w, t[3].w);
}

// Writes out = rescale * out + p_tile^T w, for rows 4*item.y + 0..3 and floats c*CHUNK + 4*item.x + 0..3 of each chunk
// c. `count` rows of w are inside the matrix. Each step is summed from zero and then added, which keeps the rounding
// errors of long sums small.
ALWAYS_INLINE void add_rows(float4* out, const float4 rescale, const GroupTiles at, __global const IN_T* w,
                            const long w_row, const int count, const int width, const int aligned) {
  OCL_UNROLL
  for (int c = 0; c < CHUNKS(width); ++c) {
    float4 acc[4];
    OCL_UNROLL
    for (int i = 0; i < 4; ++i) acc[i] = (float4)(0.0f);
    OCL_NO_UNROLL
    for (int k = 0; k < TILE_C; k += STEP) {
      float4 held[(CHUNK * STEP / 4 + GROUP_SIZE - 1) / GROUP_SIZE];
      tile_fetch(held, w + k * w_row + c * CHUNK, 1, w_row, width - c * CHUNK, count - k, at.lane, GROUP_SIZE, CHUNK,
                 STEP, 0, QUADS, aligned);
      barrier(CLK_LOCAL_MEM_FENCE);  // all have read the previous b_tile, and p_tile is complete
      tile_keep(at.b_tile, held, at.lane, GROUP_SIZE, CHUNK, STEP, 0, QUADS);
      barrier(CLK_LOCAL_MEM_FENCE);  // b_tile is complete
      tile_multiply(acc, at.p_tile + k * (TILE_R + TILE_PAD), at.b_tile, at.item, ACROSS, DOWN, STEP, 4, 4);
    }
    out[c * 4] = fma((float4)(rescale.x), out[c * 4], acc[0]);
    out[c * 4 + 1] = fma((float4)(rescale.y), out[c * 4 + 1], acc[1]);
    out[c * 4 + 2] = fma((float4)(rescale.z), out[c * 4 + 2], acc[2]);
    out[c * 4 + 3] = fma((float4)(rescale.w), out[c * 4 + 3], acc[3]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // everyone has read p_tile and b_tile
}

// Returns the maximum (is_max 1) or the sum (is_max 0) of each of the work-item's four rows, over all work-items of the
// row. parts: [ACROSS][TILE_R] of local memory.
ALWAYS_INLINE float4 across_row(__local float* parts, const GroupTiles at, const float4 own, const int is_max) {
  *(__local float4*)(parts + at.item.x * TILE_R + 4 * at.item.y) = own;
  barrier(CLK_LOCAL_MEM_FENCE);  // all parts are stored
  float4 whole = *(__local const float4*)(parts + 4 * at.item.y);
  OCL_UNROLL
  for (int x = 1; x < ACROSS; ++x) {
    const float4 part = *(__local const float4*)(parts + x * TILE_R + 4 * at.item.y);
    whole = is_max ? (part > whole ? part : whole) : whole + part;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // all have read the parts, which may now be overwritten
  return whole;
}

// The matrix of scores of a head, and the tile of it that a step computes.
typedef struct {
  int rows, columns, r0, c0;
} Scores;

// Scales the work-item's scores, and hides those outside of the matrix, or that the causal mask hides: they become -inf.
// mask: the mask of the head.
ALWAYS_INLINE void mask_scores(float4* t, const GroupTiles at, const Scores s
#if MASK
                               ,
                               __global const MASK_T* mask, const long mask_query, const long mask_key
#endif
) {
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int r = s.r0 + 4 * at.item.y + i;
    float x[4] = {t[i].x * SCALE, t[i].y * SCALE, t[i].z * SCALE, t[i].w * SCALE};
    OCL_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int c = s.c0 + 4 * at.item.x + j, query = ROWS_ARE_KEYS ? c : r, key = ROWS_ARE_KEYS ? r : c;
      if (r >= s.rows || c >= s.columns || (CAUSAL && key > query)) {
        x[j] = -INFINITY;
      } else {
#if MASK == 1
        if (!mask[query * mask_query + key * mask_key]) x[j] = -INFINITY;
#elif MASK == 2
        x[j] += LOAD(mask, query * mask_query + key * mask_key);
#elif MASK == 3
        x[j] += mask[query * mask_query + key * mask_key];
#endif
      }
    }
    t[i] = (float4)(x[0], x[1], x[2], x[3]);
  }
}

#if DROPOUT
// Writes to kept[i] the random factors, 0 or KEPT, of the work-item's scores t[i]. A draw serves four neighbouring keys of
// a query. queries_before: in all heads before this one.
ALWAYS_INLINE void draw_kept(float4* kept, const GroupTiles at, const Scores s, __global const long* state,
                             const ulong queries_before, const ulong per_query) {
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int query = ROWS_ARE_KEYS ? s.c0 + 4 * at.item.x + i : s.r0 + 4 * at.item.y + i;
    const int key = ROWS_ARE_KEYS ? s.r0 + 4 * at.item.y : s.c0 + 4 * at.item.x;
    const uint4 words = draw_words(state, (queries_before + query) * per_query + key / 4);
    const float4 x = convert_float4(words >> (uint4)(8u)) * (float4)(0x1p-24f);
    kept[i] = x < (float4)(DROP) ? (float4)(0.0f) : (float4)(KEPT);
  }
#if ROWS_ARE_KEYS
  const float4 k0 = kept[0], k1 = kept[1], k2 = kept[2], k3 = kept[3];
  kept[0] = (float4)(k0.x, k1.x, k2.x, k3.x);
  kept[1] = (float4)(k0.y, k1.y, k2.y, k3.y);
  kept[2] = (float4)(k0.z, k1.z, k2.z, k3.z);
  kept[3] = (float4)(k0.w, k1.w, k2.w, k3.w);
#endif
}
#endif

// PASS 0: turns scores t into exp(t - row_max), with the maximum of all steps so far. Returns the factor of what was added
// up before.
ALWAYS_INLINE float4 raise_scores(float4* t, float4* row_max, float4* row_sum, __local float* parts,
                                  const GroupTiles at) {
  float largest[4], sums[4];
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float xy = t[i].y > t[i].x ? t[i].y : t[i].x, zw = t[i].w > t[i].z ? t[i].w : t[i].z;
    largest[i] = zw > xy ? zw : xy;
  }
  const float4 block_max = across_row(parts, at, (float4)(largest[0], largest[1], largest[2], largest[3]), 1);
  const float4 now = block_max > *row_max ? block_max : *row_max;
  const float4 shift = now == (float4)(-INFINITY) ? (float4)(0.0f) : now;
  const float4 rescale = exp(*row_max - shift);
  t[0] = exp(t[0] - (float4)(shift.x));
  t[1] = exp(t[1] - (float4)(shift.y));
  t[2] = exp(t[2] - (float4)(shift.z));
  t[3] = exp(t[3] - (float4)(shift.w));
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) sums[i] = (t[i].x + t[i].y) + (t[i].z + t[i].w);
  *row_sum = fma(*row_sum, rescale, (float4)(sums[0], sums[1], sums[2], sums[3]));
  *row_max = now;
  return rescale;
}

// PASS 1, 2: turns scores t into p, and the gradients `grad` of p into ds. maxima, sums, deltas: of each query.
ALWAYS_INLINE void score_gradients(float4* t, float4* grad, const GroupTiles at, const Scores s,
                                   __global const float* maxima, __global const float* sums,
                                   __global const float* deltas, const float4* kept) {
  const int queries = ROWS_ARE_KEYS ? s.columns : s.rows;
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    float largest[4], inverses[4], delta[4];  // of the queries of t[i]
    OCL_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int query = ROWS_ARE_KEYS ? s.c0 + 4 * at.item.x + j : s.r0 + 4 * at.item.y + i;
      largest[j] = query < queries ? maxima[query] : 0.0f;
      inverses[j] = query < queries ? inverse_of(sums[query]) : 0.0f;
      delta[j] = query < queries ? deltas[query] : 0.0f;
    }
    const float4 p = exp(t[i] - (float4)(largest[0], largest[1], largest[2], largest[3])) *
                     (float4)(inverses[0], inverses[1], inverses[2], inverses[3]);
    t[i] = DROPOUT ? p * kept[i] : p;
    if (DROPOUT) grad[i] *= kept[i];
    grad[i] = p * (grad[i] - (float4)(delta[0], delta[1], delta[2], delta[3])) * SCALE;
  }
}

// Stores row i of the work-item's sums `out`, times `factor`. STORE4, STORE_ONE: macros of the epilogue.
#define STORE_ROW(STORE4, STORE_ONE, out, width, factor)                                         \
  OCL_UNROLL                                                                                     \
  for (int c = 0; c < CHUNKS(width); ++c) {                                                      \
    const int d = c * CHUNK + 4 * at.item.x;                                                     \
    const float4 value = out[c * 4 + i] * (factor);                                              \
    if (d + 3 < (width))                                                                         \
      STORE4(value, batch, head, r, d);                                                          \
    else                                                                                         \
      for (int l = 0; l < (width) - d; ++l) STORE_ONE(lane_of(value, l), batch, head, r, d + l); \
  }

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(
    __global const IN_T* a, const ulong a_offset, __global const IN_T* b, const ulong b_offset, __global const IN_T* w,
    const ulong w_offset,
#if PASS
    __global const IN_T* a2, const ulong a2_offset, __global const IN_T* b2, const ulong b2_offset,
    __global const float* sums, const ulong sums_offset, __global const float* delta, const ulong delta_offset,
#endif
#if PASS == 2
    __global const IN_T* w2, const ulong w2_offset,
#endif
#if MASK
    __global const MASK_T* mask, const ulong mask_offset,
#endif
#if DROPOUT
    __global const long* state, const ulong state_offset,
#endif
    const int heads, const int heads_per_kv, const int queries, const int keys, const long a_batch, const long a_head,
    const long a_row, const long b_batch, const long b_head, const long b_row, const long w_batch, const long w_head,
    const long w_row
#if PASS
    ,
    const long a2_batch, const long a2_head, const long a2_row, const long b2_batch, const long b2_head,
    const long b2_row, const long sums_which, const long sums_batch, const long sums_head, const long delta_batch,
    const long delta_head
#endif
#if PASS == 2
    ,
    const long w2_batch, const long w2_head, const long w2_row
#endif
#if MASK
    ,
    const long mask_batch, const long mask_head, const long mask_query,
    const long mask_key
#endif
        EPILOGUE_PARAMS) {
  __local float4 a_tile[STEP * (TILE_R + TILE_PAD) / 4], b_tile[STEP * (TILE_C + TILE_PAD) / 4],
      p_tile[TILE_C * (TILE_R + TILE_PAD) / 4];
#if PASS == 0
  __local float4 parts[ACROSS * TILE_R / 4];
#endif
  const int lane = get_local_id(0);
  const GroupTiles at = {(__local float*)a_tile, (__local float*)b_tile, (__local float*)p_tile, lane,
                         tile_item(lane, ACROSS, DOWN)};
  const int r0 = (int)get_group_id(0) * TILE_R, head = get_group_id(1), batch = get_group_id(2);
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int aligned = QUADS && ALIGNED(a_offset) && ALIGNED(b_offset) && ALIGNED(w_offset)
#if PASS
                      && ALIGNED(a2_offset) && ALIGNED(b2_offset)
#endif
#if PASS == 2
                      && ALIGNED(w2_offset)
#endif
      ;
  a += a_offset + batch * a_batch + head * a_head + r0 * a_row;
#if PASS
  a2 += a2_offset + batch * a2_batch + head * a2_head + r0 * a2_row;
  float4 out2[PASS == 2 ? CHUNKS(WIDTH2) * 4 : 1];
  OCL_UNROLL
  for (int i = 0; i < (PASS == 2 ? CHUNKS(WIDTH2) * 4 : 1); ++i) out2[i] = (float4)(0.0f);
#endif
  float4 out[CHUNKS(WIDTH) * 4];
  OCL_UNROLL
  for (int i = 0; i < CHUNKS(WIDTH) * 4; ++i) out[i] = (float4)(0.0f);
#if PASS == 0
  float4 row_max = (float4)(-INFINITY), row_sum = (float4)(0.0f);
#endif
#if PASS == 2
  for (int q_head = head * heads_per_kv; q_head < (head + 1) * heads_per_kv; ++q_head) {
    const int column_head = q_head;
#else
  {
    const int q_head = head, column_head = head / heads_per_kv;
#endif
    __global const IN_T* column = b + b_offset + batch * b_batch + column_head * b_head;
    __global const IN_T* added = w + w_offset + batch * w_batch + column_head * w_head;
#if PASS
    __global const IN_T* column2 = b2 + b2_offset + batch * b2_batch + column_head * b2_head;
    __global const float* row_sums = sums + sums_offset + batch * sums_batch + q_head * sums_head;
    __global const float* row_delta = delta + delta_offset + batch * delta_batch + q_head * delta_head;
#endif
#if PASS == 2
    __global const IN_T* added2 = w2 + w2_offset + batch * w2_batch + column_head * w2_head;
#endif
    const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TILE_C * TILE_C : 0;
    const int end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + TILE_R) : columns;
    for (int c0 = begin; c0 < end; c0 += TILE_C) {
      const int left = columns - c0;
      float4 t[4];
      multiply_scores(t, at, a, a_row, rows - r0, column + c0 * b_row, b_row, left, DEPTH, aligned);
#if PASS
      float4 grad[4];
      multiply_scores(grad, at, a2, a2_row, rows - r0, column2 + c0 * b2_row, b2_row, left, DEPTH2, aligned);
#endif
      const Scores scores = {rows, columns, r0, c0};
#if MASK
      mask_scores(t, at, scores, mask + mask_offset + batch * mask_batch + q_head * mask_head, mask_query, mask_key);
#else
      mask_scores(t, at, scores);
#endif
      float4 kept[4];
#if DROPOUT
      draw_kept(kept, at, scores, state + state_offset, ((ulong)batch * heads + q_head) * queries,
                (ulong)((keys + 3) / 4));
#endif
#if PASS == 0
      const float4 rescale = raise_scores(t, &row_max, &row_sum, (__local float*)parts, at);
      OCL_UNROLL
      for (int i = 0; i < 4; ++i)
        if (DROPOUT) t[i] *= kept[i];
      keep_scores(at, t);
      add_rows(out, rescale, at, added + c0 * w_row, w_row, left, WIDTH, aligned);
#else
      score_gradients(t, grad, at, scores, row_sums, row_sums + sums_which, row_delta, kept);
#if PASS == 2
      keep_scores(at, t);
      add_rows(out2, (float4)(1.0f), at, added2 + c0 * w2_row, w2_row, left, WIDTH2, aligned);
#endif
      keep_scores(at, grad);
      add_rows(out, (float4)(1.0f), at, added + c0 * w_row, w_row, left, WIDTH, aligned);
#endif
    }
  }
#if PASS == 0
  row_sum = across_row((__local float*)parts, at, row_sum, 0);
#endif
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int r = r0 + 4 * at.item.y + i;
    if (r < rows) {
#if PASS == 0
      const float sum = lane_of(row_sum, i), largest = lane_of(row_max, i);
      const float inverse = keys > 0 ? inverse_of(sum) : 0.0f;
      if (at.item.x < 2) STORE1(at.item.x ? sum : largest == -INFINITY ? 0.0f : largest, at.item.x, batch, head, r);
      STORE_ROW(STOREV, STORE, out, WIDTH, inverse)
#else
      STORE_ROW(STOREV, STORE, out, WIDTH, 1.0f)
#endif
#if PASS == 2
      STORE_ROW(STORE1V, STORE1, out2, WIDTH2, 1.0f)
#endif
    }
  }
}
