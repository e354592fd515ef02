// kernels/attention/group.cl: attention and its gradients without the matrix of scores in memory. Group kernel: one
// work-group = TILE_R rows.
//
//   s = SCALE q k^T + mask, or CAP tanh(SCALE q k^T / CAP) + mask      p = exp(s - row_max) / row_sum      out = dropout(p) v
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
//   BLOCKS:     blocks uchar by blocks_batch, blocks_head, blocks_query, blocks_key: 0 where the mask hides a whole block
// heads: of q. heads_per_kv: heads of q per head of k and v. Global size: (ceil(rows / TILE_R) * GROUP_SIZE, heads of the
// rows, batches), local size (GROUP_SIZE, 1, 1). Epilogue macros: STORE(acc, b, h, row, d), STOREV (4 along d); PASS 0:
// STORE1(sum, which, b, h, row); PASS 2: STORE1, STORE1V for dv.

// The matrix of scores of a head, and the tile of it that a step computes.
typedef struct {
  int rows, columns, r0, c0;
} Scores;

// SLOPES declares the derivatives of capped scores, of the scores t[i]. SLOPE: one of them.
#ifdef CAP
#define SLOPES float4 slopes[4]
#define SLOPE(i) slopes[i]
#else
#define SLOPES float4* slopes = t
#define SLOPE(i) (float4)(1.0f)
#endif

// Scales and caps the work-item's scores, and hides those outside of the matrix, or that the causal mask hides: they become
// -inf. slopes: becomes the derivatives of the caps. mask: the mask of the head.
ALWAYS_INLINE void mask_scores(float4* t, float4* slopes, const GroupTiles at, const Scores s
#if STORED_MASK
                               ,
                               __global const MASK_T* mask, const long mask_query, const long mask_key
#elif MASK
                               ,
                               const int batch, const int head EPILOGUE_FUNCTION_PARAMS
#endif
) {
#if STORED_MASK
  const long down = ROWS_ARE_KEYS ? mask_key : mask_query, along = ROWS_ARE_KEYS ? mask_query : mask_key;
  mask += (s.r0 + 4 * at.item.y) * down + (s.c0 + 4 * at.item.x) * along;
#endif
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int r = s.r0 + 4 * at.item.y + i;
    float x[4] = {t[i].x * SCALE, t[i].y * SCALE, t[i].z * SCALE, t[i].w * SCALE};
#ifdef CAP
    const float4 bounded = tanh((float4)(x[0], x[1], x[2], x[3]) * (float4)(1.0f / CAP));
    slopes[i] = fma(-bounded, bounded, (float4)(1.0f));
    x[0] = bounded.x * CAP;
    x[1] = bounded.y * CAP;
    x[2] = bounded.z * CAP;
    x[3] = bounded.w * CAP;
#endif
    OCL_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int c = s.c0 + 4 * at.item.x + j, hidden = CAUSAL && (ROWS_ARE_KEYS ? r > c : c > r);
      if (r >= s.rows || c >= s.columns || hidden) {
        x[j] = -INFINITY;
      } else {
#if MASK == 1
        if (!mask[i * down + j * along]) x[j] = -INFINITY;
#elif MASK == 2
        x[j] += LOAD(mask, i * down + j * along);
#elif MASK == 3
        x[j] += mask[i * down + j * along];
#elif MASK
        const float mask = MASK_VALUE(batch, head, ROWS_ARE_KEYS ? c : r, ROWS_ARE_KEYS ? r : c);
        x[j] = ADD_MASK(x[j], mask);
#endif
      }
    }
    t[i] = (float4)(x[0], x[1], x[2], x[3]);
  }
}

#if DROPOUT
// Returns which of the work-item's scores are kept: bit 4*i + j is 1 if lane j of t[i] is. A draw serves four neighbouring
// keys of a query. queries_before: in all heads before this one.
ALWAYS_INLINE uint draw_kept(const GroupTiles at, const Scores s, __global const long* state,
                             const ulong queries_before, const ulong per_query) {
  uint kept = 0;
  OCL_NO_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int query = ROWS_ARE_KEYS ? s.c0 + 4 * at.item.x + i : s.r0 + 4 * at.item.y + i;
    const int key = ROWS_ARE_KEYS ? s.r0 + 4 * at.item.y : s.c0 + 4 * at.item.x;
    const uint4 words = draw_words(state, (queries_before + query) * per_query + key / 4);
    const float4 x = convert_float4(words >> (uint4)(8u)) * (float4)(0x1p-24f);
    const uint4 ones = as_uint4(x >= (float4)(DROP)) & (uint4)(1u);
    if (ROWS_ARE_KEYS)
      kept |= (ones.x | ones.y << 4 | ones.z << 8 | ones.w << 12) << i;
    else
      kept |= (ones.x | ones.y << 1 | ones.z << 2 | ones.w << 3) << 4 * i;
  }
  return kept;
}

// Returns the place of a work-item for `kept`, in the padding of p_tile.
ALWAYS_INLINE __local uint* place_of_kept(const GroupTiles at) {
  return (__local uint*)at.p_tile + at.lane / TILE_PAD * (TILE_R + TILE_PAD) + TILE_R + at.lane % TILE_PAD;
}

// Returns x with dropout, where x belongs to the scores t[i].
ALWAYS_INLINE float4 dropped(const float4 x, const uint kept, const int i) {
  const uint bits = kept >> 4 * i;
  return x *
         (float4)(bits & 1u ? KEPT : 0.0f, bits & 2u ? KEPT : 0.0f, bits & 4u ? KEPT : 0.0f, bits & 8u ? KEPT : 0.0f);
}
#else
#define dropped(x, kept, i) (x)
#endif

ALWAYS_INLINE float4 inverses_of(const float4 x) {
  return (float4)(inverse_of(x.x), inverse_of(x.y), inverse_of(x.z), inverse_of(x.w));
}

// PASS 0: turns scores t into exp(t - row_max), with the maximum of all steps so far. Returns the factor of what was added
// up before.
ALWAYS_INLINE float4 raise_scores(float4* t, float4* row_max, float4* row_sum, const GroupTiles at) {
  float largest[4], sums[4];
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float xy = t[i].y > t[i].x ? t[i].y : t[i].x, zw = t[i].w > t[i].z ? t[i].w : t[i].z;
    largest[i] = zw > xy ? zw : xy;
  }
  const float4 block_max = across_row(at, (float4)(largest[0], largest[1], largest[2], largest[3]), 1);
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

#if PASS
#if ROWS_ARE_KEYS
#define STATISTICS TILE_C  // queries of a tile
#else
#define STATISTICS TILE_R
#endif
// Stores what is known of the tile's queries q0 .. q0 + STATISTICS - 1: maximum and inverse sum of the exponentials, and
// delta. Zeros stand for queries beyond the last one.
ALWAYS_INLINE void keep_statistics(const GroupTiles at, const int q0, const int queries, __global const float* maxima,
                                   __global const float* sums, __global const float* deltas) {
  if (at.lane < STATISTICS) {
    const int query = q0 + at.lane, inside = query < queries;
    at.statistics[at.lane] = inside ? maxima[query] : 0.0f;
    at.statistics[STATISTICS + at.lane] = inside ? inverse_of(sums[query]) : 0.0f;
    at.statistics[2 * STATISTICS + at.lane] = inside ? deltas[query] : 0.0f;
  }
}

// Returns statistic `which` of the queries of the work-item's scores t[i].
ALWAYS_INLINE float4 statistic(const GroupTiles at, const int which, const int i) {
  __local const float* from = at.statistics + which * STATISTICS;
  return ROWS_ARE_KEYS ? *(__local const float4*)(from + 4 * at.item.x) : (float4)(from[4 * at.item.y + i]);
}

// Turns scores t into p.
ALWAYS_INLINE void score_weights(float4* t, const GroupTiles at) {
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) t[i] = exp(t[i] - statistic(at, 0, i)) * statistic(at, 1, i);
}

// Turns the gradients `grad` of p into ds. slopes: see mask_scores.
ALWAYS_INLINE void score_gradients(float4* grad, const float4* p, const float4* slopes, const GroupTiles at) {
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) grad[i] = p[i] * (grad[i] - statistic(at, 2, i)) * SLOPE(i) * SCALE;
}
#endif

// Stores the work-item's sums `out`, of row i times lane i of `factors`. They go through p_tile, of which a work-item reads
// what it has written: so one copy of the stores serves all rows. STORE4, STORE_ONE: macros of the epilogue.
#define STORE_ROWS(STORE4, STORE_ONE, out, width, factors)                                           \
  OCL_UNROLL                                                                                         \
  for (int c = 0; c < CHUNKS(width); ++c) {                                                          \
    const int d = c * CHUNK + 4 * at.item.x;                                                         \
    keep_scores(at, (out) + 4 * c);                                                                  \
    OCL_NO_UNROLL                                                                                    \
    for (int i = 0; i < 4; ++i) {                                                                    \
      const int r = r0 + 4 * at.item.y + i;                                                          \
      const float4 value = kept_row(at, i) * (float4)(lane_of(factors, i));                          \
      if (r < rows) {                                                                                \
        if (d + 3 < (width))                                                                         \
          STORE4(value, batch, head, r, d);                                                          \
        else                                                                                         \
          for (int l = 0; l < (width) - d; ++l) STORE_ONE(lane_of(value, l), batch, head, r, d + l); \
      }                                                                                              \
    }                                                                                                \
  }

// The tiles for part n of a step: 1 the scores, 2 sums of p, 3 the gradient of p, 4 sums of ds.
#define PART(n) AT_PART(at, q_head, n)

// 1: all operands begin at multiples of four elements.
#if PASS == 0
#define OFFSETS_ALIGNED (ALIGNED(a_offset) && ALIGNED(b_offset) && ALIGNED(w_offset))
#elif PASS == 1
#define OFFSETS_ALIGNED \
  (ALIGNED(a_offset) && ALIGNED(b_offset) && ALIGNED(w_offset) && ALIGNED(a2_offset) && ALIGNED(b2_offset))
#else
#define OFFSETS_ALIGNED                                                                                       \
  (ALIGNED(a_offset) && ALIGNED(b_offset) && ALIGNED(w_offset) && ALIGNED(a2_offset) && ALIGNED(b2_offset) && \
   ALIGNED(w2_offset))
#endif

#if BLOCKS
// 1: the mask does not hide all scores of a step.
#define STEP_IS_SEEN \
  is_seen(seen_columns(BLOCKS_OF(batch, q_head), r0, min(r0 + TILE_R, rows) - 1, c0, min(TILE_C, left)))
ALWAYS_INLINE int is_seen(const int2 columns) {
  return columns.x < columns.y;
}
#else
#define STEP_IS_SEEN 1
#endif
#if STORED_MASK
#define MASK_SCORES(t, slopes, scores)                                                                              \
  mask_scores(t, slopes, PART(1), scores, mask + mask_offset + batch * mask_batch + q_head * mask_head, mask_query, \
              mask_key)
#elif MASK
#define MASK_SCORES(t, slopes, scores) mask_scores(t, slopes, PART(1), scores, batch, q_head EPILOGUE_PASS)
#else
#define MASK_SCORES(t, slopes, scores) mask_scores(t, slopes, PART(1), scores)
#endif
// Stores the maxima and sums of the work-item's rows.
#define STORE_SUMS(row_max, row_sum)                                                                              \
  if (at.item.x < 2) {                                                                                            \
    const float4 value = at.item.x ? (row_sum) : ((row_max) == (float4)(-INFINITY) ? (float4)(0.0f) : (row_max)); \
    const int r = r0 + 4 * at.item.y;                                                                             \
    for (int l = 0; l < min(4, rows - r); ++l) STORE1(lane_of(value, l), at.item.x, batch, head, r + l);          \
  }

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1,
                                             1))) THREAD_SIZE void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local float4 a_tile[STEP * (TILE_R + TILE_PAD) / 4], b_tile[STEP * (TILE_C + TILE_PAD) / 4],
      p_tile[TILE_C * (TILE_R + TILE_PAD) / 4];
#if PASS
  __local float4 statistics[3 * STATISTICS / 4];
#endif
  const int lane = get_local_id(0);
  const GroupTiles at = {(__local float*)a_tile,
                         (__local float*)b_tile,
                         (__local float*)p_tile,
#if PASS
                         (__local float*)statistics,
#endif
                         lane,
                         tile_item(lane, ACROSS, DOWN)};
  const int r0 = (int)get_group_id(0) * TILE_R, head = get_group_id(1), batch = get_group_id(2);
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int aligned = QUADS && OFFSETS_ALIGNED;
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
  const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TILE_C * TILE_C : 0;
  const int end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + TILE_R) : columns;
  int q_head = PASS == 2 ? head * heads_per_kv : head;
  const int q_heads = PASS == 2 ? q_head + heads_per_kv : q_head + 1;
  // One loop over heads and columns: with two, compilers hold the addresses of both.
  for (int c0 = begin; begin < end && q_head < q_heads;) {
    const int column_head = PASS == 2 ? q_head : q_head / heads_per_kv;
    __global const IN_T* column = b + b_offset + batch * b_batch + column_head * b_head + c0 * b_row;
    __global const IN_T* added = w + w_offset + batch * w_batch + column_head * w_head + c0 * w_row;
#if PASS
    __global const IN_T* column2 = b2 + b2_offset + batch * b2_batch + column_head * b2_head + c0 * b2_row;
    __global const float* row_sums = sums + sums_offset + batch * sums_batch + q_head * sums_head;
    __global const float* row_delta = delta + delta_offset + batch * delta_batch + q_head * delta_head;
#endif
#if PASS == 2
    __global const IN_T* added2 = w2 + w2_offset + batch * w2_batch + column_head * w2_head + c0 * w2_row;
#endif
    const int left = columns - c0;
    float4 t[4];
    SLOPES;
#if PASS
    if (ROWS_ARE_KEYS || c0 == begin)
      keep_statistics(PART(1), ROWS_ARE_KEYS ? c0 : r0, queries, row_sums, row_sums + sums_which, row_delta);
#endif
    if (STEP_IS_SEEN) {
      multiply_scores(t, PART(1), a, a_row, rows - r0, column, b_row, left, DEPTH, aligned);
      const Scores scores = {rows, columns, r0, c0};
      MASK_SCORES(t, slopes, scores);
#if DROPOUT
      uint kept = draw_kept(PART(1), scores, state + state_offset, ((ulong)batch * heads + q_head) * queries,
                            (ulong)((keys + 3) / 4));
#endif
#if PASS == 0
      const float4 rescale = raise_scores(t, &row_max, &row_sum, PART(1));
      OCL_UNROLL
      for (int i = 0; i < 4; ++i) t[i] = dropped(t[i], kept, i);
      keep_scores(PART(1), t);
      add_rows(out, rescale, PART(2), added, w_row, left, WIDTH, aligned);
#else
      score_weights(t, PART(1));
      float4 grad[4];
#if PASS == 2
      OCL_UNROLL
      for (int i = 0; i < 4; ++i) grad[i] = dropped(t[i], kept, i);
      keep_scores(PART(1), grad);
      add_rows(out2, (float4)(1.0f), PART(2), added2, w2_row, left, WIDTH2, aligned);
#elif FEW_REGISTERS
      keep_scores(PART(1), t);
#endif
#if DROPOUT && FEW_REGISTERS
      *place_of_kept(PART(3)) = kept;  // A compiler would hold the 16 factors instead.
#endif
      multiply_scores(grad, PART(3), a2, a2_row, rows - r0, column2, b2_row, left, DEPTH2, aligned);
#if DROPOUT && FEW_REGISTERS
      kept = *place_of_kept(PART(3));
#endif
      OCL_UNROLL
      for (int i = 0; i < 4; ++i) grad[i] = dropped(grad[i], kept, i);
#if FEW_REGISTERS && !(PASS == 2 && DROPOUT)
      OCL_UNROLL
      for (int i = 0; i < 4; ++i) t[i] = kept_row(PART(3), i);
#endif
      score_gradients(grad, t, slopes, PART(3));
      keep_scores(PART(3), grad);
      add_rows(out, (float4)(1.0f), PART(4), added, w_row, left, WIDTH, aligned);
#endif
    }
    c0 += TILE_C;
    q_head += c0 >= end;
    c0 = c0 >= end ? begin : c0;
  }
#if PASS == 0
  row_sum = across_row(at, row_sum, 0);
  const float4 inverse = keys > 0 ? inverses_of(row_sum) : (float4)(0.0f);
  STORE_SUMS(row_max, row_sum)
  STORE_ROWS(STOREV, STORE, out, WIDTH, inverse)
#else
  STORE_ROWS(STOREV, STORE, out, WIDTH, (float4)(1.0f))
#endif
#if PASS == 2
  STORE_ROWS(STORE1V, STORE1, out2, WIDTH2, (float4)(1.0f))
#endif
}
