// kernels/attention/scores.cl: how attention on tensor cores processes scores in registers: masks, dropout, running
// softmax, gradients, stores. Comes after attention/single_scores.cl and tensor_core/store.cl, and
// tensor_core/warpgroup.cl or tensor_core/warp.cl.
//
// A step has TILE_C columns of scores. A lane holds two of 16 rows, r and r + 8 with r = lane / 4, and of these rows
// two neighbours in each block of 8 columns:
//   s[4*j + 2*half + e] is the score of row r + 8 * half and column 8*j + 2*(lane % 4) + e
// Rows are queries and columns are keys. In the gradients of keys and values (PASS 2, 3) it is the other way round.

// 1 if rows outside the matrix matter: PASS 3 sums over keys, its rows. Otherwise what they give is not stored.
#define ROWS_MATTER (PASS == 3)

// Adds the mask to the scores s of columns c0 .. c0 + TILE_C - 1. A score whose query does not see its key becomes
// -inf. row: the row of s[0]. inside: 1 if all scores are those of a query and a key, which CAUSAL does not hide.
ALWAYS_INLINE void mask_scores(float* s, int c0, int row, const int inside, const int queries,
                               const int keys MASK_PARAMS) {
#if PASS && !HALVES
  RECOMPUTE_FROM(row);  // addresses of the mask
  RECOMPUTE_FROM(c0);
#endif
#if STORED_MASK
  // All loads are unconditional, so that they are in flight together. Positions outside the scores load the mask's last
  // row or column.
  const int last_row = (ROWS_ARE_KEYS ? keys : queries) - 1, last_column = (ROWS_ARE_KEYS ? queries : keys) - 1;
  const long down = ROWS_ARE_KEYS ? mask_key : mask_query, along = ROWS_ARE_KEYS ? mask_query : mask_key;
  __global const MASK_T* rows[2] = {mask + min(row, last_row) * down, mask + min(row + 8, last_row) * down};
#endif
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; ++i) {
    const int r = row + (i >> 1 & 1) * 8, c = c0 + (i >> 2) * 8 + (get_local_id(0) & 3) * 2 + (i & 1);
    const int query = ROWS_ARE_KEYS ? c : r, key = ROWS_ARE_KEYS ? r : c;
    int seen = inside || ((ROWS_MATTER ? r < (ROWS_ARE_KEYS ? keys : queries) : 1) &&
                          c < (ROWS_ARE_KEYS ? queries : keys) && !(CAUSAL && key > query));
#if MASK == 4
    const float added =
        MASK_VALUE(batch, mask_head, inside ? query : min(query, queries - 1), inside ? key : min(key, keys - 1));
#if MASK_HIDES
    seen = seen && added == 0.0f;
#else
    s[i] = ADD_MASK(s[i] * SCALE, added);
#endif
#elif MASK
    __global const MASK_T* m = rows[i >> 1 & 1] + min(c, last_column) * along;
#if MASK == 1
    seen = seen && *m;
#elif MASK == 2
    s[i] = s[i] * SCALE + LOAD((__global const IN_T*)m, 0);
#else
    s[i] = s[i] * SCALE + *m;
#endif
#endif
    s[i] = seen ? s[i] : -INFINITY;
  }
}
// Masks the scores s, unless the tile has no score that may be hidden. row: the row of s[0]; first: the first of the
// (at most 64) rows for which the work-items decide this together; shown: 1 if the mask hides no score of the tile.
#define MASK_SCORES(s, row, first, c0, shown)                                              \
  {                                                                                        \
    if ((c0) + TILE_C > (ROWS_ARE_KEYS ? queries : keys) ||                                \
        ((MASK == 4 || ROWS_MATTER) && (first) + 64 > (ROWS_ARE_KEYS ? keys : queries)) || \
        (CAUSAL && (ROWS_ARE_KEYS ? (first) + 63 > (c0) : (c0) + TILE_C - 1 > (first))))   \
      mask_scores(s, c0, row, 0, queries, keys MASK_PASS);                                 \
    else if (MASK && !(shown))                                                             \
      mask_scores(s, c0, row, MASK == 4, queries, keys MASK_PASS);                         \
  }

#if DROPOUT
#define KEEP_WORDS ((TILE_C + 63) / 64)  // words of keep_bits
// Returns x of the lane whose number differs from this lane's in the bit `bit`: 1, 4 or 8.
ALWAYS_INLINE uint lane_bits(const uint x, const int bit) {
  float y;
  if (bit == 1)
    OTHER_LANE(y, as_float(x), 1);
  else if (bit == 4)
    OTHER_LANE(y, as_float(x), 4);
  else
    OTHER_LANE(y, as_float(x), 8);
  return as_uint(y);
}
// Writes to keep_bits which scores are kept: bit i % 32 of keep_bits[i / 32] is 1 if s[i] is. row: the row of s[0].
// One draw gives four bits, for four neighbouring keys, whose scores several lanes hold. So for each word of keep_bits
// (32 scores of a lane), a lane makes eight draws, partly for scores of other lanes. Then the lanes exchange bits:
//   rows are queries: lanes 2n and 2n + 1 draw for the upper and the lower row.
//   rows are keys: four lanes hold the keys of a draw. Each makes the draws of two columns and two rows. Together they
//   transpose the block of 4x4 bits.
ALWAYS_INLINE void draw(uint* keep_bits, const Draws o, const int row, const int c0) {
  const int lane = get_local_id(0) & 31, m = lane >> 2 & 3;
  OCL_UNROLL
  for (int word = 0; word < KEEP_WORDS; ++word) {
    uint own = 0;
    OCL_UNROLL
    for (int j = 0; j < 8; ++j) {
      if (word * 64 + j * 8 >= TILE_C) continue;
      const int c = c0 + word * 64 + j * 8;
#if ROWS_ARE_KEYS
      own |= draw_kept(o, c + (lane & 3) * 2 + (m & 1), row - m + (m >> 1) * 8) << (4 * j);
#else
      own |= draw_kept(o, row + (lane & 1) * 8, c + (lane & 2) * 2) << (4 * j);
#endif
    }
#if ROWS_ARE_KEYS
    uint other = lane_bits(own, 4);
    own = m & 1 ? (own & 0xAAAAAAAAu) | (other >> 1 & 0x55555555u) : (own & 0x55555555u) | (other << 1 & 0xAAAAAAAAu);
    other = lane_bits(own, 8);
    keep_bits[word] =
        m & 2 ? (own & 0xCCCCCCCCu) | (other >> 2 & 0x33333333u) : (own & 0x33333333u) | (other << 2 & 0xCCCCCCCCu);
#else
    const uint other = lane_bits(own, 1);
    keep_bits[word] =
        lane & 1 ? (own & 0xCCCCCCCCu) | (other >> 2 & 0x33333333u) : (own & 0x33333333u) | (other << 2 & 0xCCCCCCCCu);
#endif
  }
}
ALWAYS_INLINE void drop(float* s, const uint* keep_bits) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; ++i) s[i] *= keep_bits[i >> 5] >> (i & 31) & 1 ? KEPT : 0.0f;
}
#define DRAW(keep_bits, row, c0) draw(keep_bits, draws, row, c0)
#define DROP_SCORES(s, keep_bits) drop(s, keep_bits)
#else
#define DRAW(keep_bits, row, c0)
#define DROP_SCORES(s, keep_bits)
#endif

// Stores a lane's two rows of sums, r = `row` and r + 8 of `rows`, times `factor`, by the macros `one` and `vector`. The lanes
// of a row exchange sums, so that each stores VW neighbours (tensor_core/store.cl), all before the first store: the conditions
// of stores would end each overlap of the exchanges. `width` is a multiple of VW, or VW is 2.
// factor may depend on half_: 1 for the second row. The calling kernel must have the variables batch and head.
#define STORE_TWO_ROWS(sums, factor, row, rows, width, one, vector)                                              \
  {                                                                                                              \
    RowVector sums_[2][DEPTH_TILE / 4 / VW];                                                                     \
    OCL_UNROLL                                                                                                   \
    for (int half_ = 0; half_ < 2; ++half_) {                                                                    \
      OCL_UNROLL                                                                                                 \
      for (int j_ = 0; j_ < DEPTH_TILE / 4 / VW; ++j_) sums_[half_][j_] = exchanged(sums, half_, j_) * (factor); \
    }                                                                                                            \
    OCL_UNROLL                                                                                                   \
    for (int half_ = 0; half_ < 2; ++half_) {                                                                    \
      const int r_ = (row) + 8 * half_;                                                                          \
      OCL_UNROLL                                                                                                 \
      for (int j_ = 0; j_ < DEPTH_TILE / 4 / VW; ++j_) {                                                         \
        const int d_ = vector_column(j_);                                                                        \
        if (r_ < (rows) && d_ + VW <= (width))                                                                   \
          vector(sums_[half_][j_], batch, head, r_, d_);                                                         \
        else if (VW == 2 && r_ < (rows) && d_ < (width))                                                         \
          one(sums_[half_][j_].s0, batch, head, r_, d_);                                                         \
      }                                                                                                          \
    }                                                                                                            \
  }

#if PASS == 0
// Returns the maximum (is_max 1) or the sum (is_max 0) of x over the four neighbouring lanes that hold a row.
ALWAYS_INLINE float across_row(float x, const int is_max) {
  float y;
  OTHER_LANE(y, x, 1);
  x = is_max ? fmax(x, y) : x + y;
  OTHER_LANE(y, x, 2);
  return is_max ? fmax(x, y) : x + y;
}

// A step of the running softmax of one of the lane's rows, `half_`: softmax_shift, then softmax_exponentials.
//
// Updates row_max. Returns what softmax_exponentials adds. `rescale` becomes the factor that the caller must apply to the output
// sums of earlier steps.
ALWAYS_INLINE float softmax_shift(const float* s, float* row_max, float* rescale, const int half_) {
  // Four chains of maxima, because each maximum waits for the one before.
  float chains[4] = {row_max[half_], s[2 * half_], s[2 * half_ + 1], s[4 + 2 * half_]};
  OCL_UNROLL
  for (int i = 3; i < TILE_C / 4; ++i) chains[i % 4] = fmax(s[i / 2 * 4 + 2 * half_ + i % 2], chains[i % 4]);
  const float largest = across_row(fmax(fmax(chains[0], chains[1]), fmax(chains[2], chains[3])), 1);
  const float shift = largest == -INFINITY ? 0.0f : -largest * TO_LOG2;
  rescale[half_] = exp2_of(fma(row_max[half_], TO_LOG2, shift));
  row_max[half_] = largest;
  return shift;
}
// Replaces s by exp(s - row_max), and updates row_sum, the sum of the lane's own columns.
ALWAYS_INLINE void softmax_exponentials(float* s, float* row_sum, const float* rescale, const float shift,
                                        const int half_) {
  float sum = 0.0f;
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 4; ++i) {
    const int at = i / 2 * 4 + 2 * half_ + i % 2;
    s[at] = exp2_of(fma(s[at], TO_LOG2, shift));
    sum += s[at];
  }
  row_sum[half_] = fma(row_sum[half_], rescale[half_], sum);
}
ALWAYS_INLINE void softmax_step(float* s, float* row_max, float* row_sum, float* rescale) {
  OCL_UNROLL
  for (int half_ = 0; half_ < 2; ++half_)
    softmax_exponentials(s, row_sum, rescale, softmax_shift(s, row_max, rescale, half_), half_);
}
ALWAYS_INLINE void rescale_rows(float* out, const float* rescale) {
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out[i] *= rescale[i >> 1 & 1];
}

// Stores the lane's two rows of the output, divided by their sums, and the rows' maxima and sums. row: the first of the
// two rows. The calling kernel must have the variables batch, head, queries and keys.
#define STORE_ATTENTION(out, row_max, row_sum, row)                                                       \
  {                                                                                                       \
    float inverses[2];                                                                                    \
    OCL_UNROLL                                                                                            \
    for (int half_ = 0; half_ < 2; ++half_) {                                                             \
      const int r = (row) + 8 * half_;                                                                    \
      const float sum = across_row((row_sum)[half_], 0);                                                  \
      inverses[half_] = keys == 0 ? 0.0f : sum == 0.0f ? (NAN_ROWS ? NAN : 0.0f) : 1.0f / sum;            \
      if (r < queries && (get_local_id(0) & 3) == 0) {                                                    \
        STORE1((row_max)[half_] == -INFINITY ? 0.0f : (row_max)[half_] * SCORE_SCALE, 0, batch, head, r); \
        STORE1(sum, 1, batch, head, r);                                                                   \
      }                                                                                                   \
    }                                                                                                     \
    STORE_TWO_ROWS(out, inverses[half_], row, queries, WIDTH, STORE, STOREV)                              \
  }
#else
// Returns statistic `which` (0 lse, 1 delta) of the queries of scores i and i + 1 as float2. queries (PASS 2):
// statistics in local memory, from this lane's first column on. row_statistics (PASS 1): lse of the lane's two rows,
// then delta of both.
#ifndef QUERIES_HELD
#define QUERIES_HELD TILE_C
#endif
#define STATISTIC(i, which)                                          \
  (ROWS_ARE_KEYS ? queries[(which) * QUERIES_HELD / 2 + (i) / 4 * 4] \
                 : (float2)(row_statistics[2 * (which) + ((i) >> 1 & 1)]))
// Replaces s by p = 2^(s log2(e) - lse). queries, row_statistics: see STATISTIC.
ALWAYS_INLINE void softmax_weights(float* s, __local const float2* queries, const float* row_statistics) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; i += 2) {
    const float2 weight = STATISTIC(i, 0);
    s[i] = exp2_of(fma(s[i], TO_LOG2, -weight.x));
    s[i + 1] = exp2_of(fma(s[i + 1], TO_LOG2, -weight.y));
  }
}
// Writes ds = p (grad - delta). queries, row_statistics: see STATISTIC.
ALWAYS_INLINE void score_gradient(float* ds, const float* p, const float* grad, __local const float2* queries,
                                  const float* row_statistics) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; i += 2) {
    const float2 delta = STATISTIC(i, 1);
    ds[i] = p[i] * (grad[i] - delta.x);
    ds[i + 1] = p[i + 1] * (grad[i + 1] - delta.y);
  }
}

// Stores the lane's two rows of the gradients `out` and, with PASS 2, `out2`. row: the first of the two rows. The
// calling kernel must have the variables batch, head and rows.
#define STORE_GRADIENTS(out, out2, row) \
  {STORE_TWO_ROWS(out, SCALE, row, rows, DEPTH, STORE, STOREV) STORE_SECOND_GRADIENT(out2, row)}
#if PASS == 2
#define STORE_SECOND_GRADIENT(out2, row) STORE_TWO_ROWS(out2, 1.0f, row, rows, DEPTH2, STORE1, STORE1V)
#else
#define STORE_SECOND_GRADIENT(out2, row)
#endif
#endif
