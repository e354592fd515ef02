// kernels/attention/scores.cl: what the kernels of attention on matrix units do to scores in registers: masks, dropout,
// the running softmax,
// derivatives, stores. Comes after attention/parameters.cl, and tensor_core/warpgroup.cl or tensor_core/warp.cl.
//
// A lane has of 16 rows of the scores two, r and r + 8, and walks over TILE_C columns a step, two neighbours of each
// block of 8:
//   s[4*j + 2*half + e]    row r + 8 * half, column 8*j + 2*(lane % 4) + e     r: lane / 4
// Rows are queries and columns keys, or the other way round in the gradient of keys and values (PASS 2).
#ifndef DIRECT
#define DIRECT 0  // 1: all sizes and strides of rows are multiples of 16 bytes
#endif
#define LOG2E 1.44269504f
#if MASK
#define SCORE_SCALE 1.0f  // of the scores in registers: a mask is added to scaled ones
#else
#define SCORE_SCALE SCALE
#endif
#define TO_LOG2 (SCORE_SCALE * LOG2E)

// The scores of columns c0 .. with their mask added, -inf where nothing is seen. row: of s[0].
ALWAYS_INLINE void hide(float* s, int c0, int row, const int queries, const int keys
#if MASK
                        ,
                        __global const MASK_T* mask, const long mask_query, const long mask_key
#endif
) {
#if PASS && !HALVES
  FRESH(row);  // addresses of the mask
  FRESH(c0);
#endif
#if MASK
  // Loads are under no condition, so that they are on their way together: beyond the scores they read the last element.
  const int last_row = (ROWS_ARE_KEYS ? keys : queries) - 1, last_column = (ROWS_ARE_KEYS ? queries : keys) - 1;
  const long down = ROWS_ARE_KEYS ? mask_key : mask_query, along = ROWS_ARE_KEYS ? mask_query : mask_key;
  __global const MASK_T* rows[2] = {mask + min(row, last_row) * down, mask + min(row + 8, last_row) * down};
#endif
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; ++i) {
    const int r = row + (i >> 1 & 1) * 8, c = c0 + (i >> 2) * 8 + (get_local_id(0) & 3) * 2 + (i & 1);
    const int query = ROWS_ARE_KEYS ? c : r, key = ROWS_ARE_KEYS ? r : c;
    const int seen = query < queries && key < keys && !(CAUSAL && key > query);
#if MASK
    __global const MASK_T* m = rows[i >> 1 & 1] + min(c, last_column) * along;
#if MASK == 1
    s[i] = *m ? s[i] * SCALE : -INFINITY;
#elif MASK == 2
    s[i] = s[i] * SCALE + LOAD((__global const IN_T*)m, 0);
#else
    s[i] = s[i] * SCALE + *m;
#endif
#endif
    s[i] = seen ? s[i] : -INFINITY;
  }
}
#if MASK
#define HIDE_SCORES(s, row, first, c0) hide(s, c0, row, queries, keys, mask, mask_query, mask_key)
#else
#define HIDE_SCORES(s, row, first, c0)                                                 \
  if ((c0) + TILE_C > (ROWS_ARE_KEYS ? queries : keys) ||                              \
      (CAUSAL && (ROWS_ARE_KEYS ? (first) + 63 > (c0) : (c0) + TILE_C - 1 > (first)))) \
  hide(s, c0, row, queries, keys)
#endif

#if DROPOUT
// What is drawn for a head's scores: see csrc/ir/graph.h.
typedef struct {
  __global const long* state;
  ulong queries_before, per_query;  // queries of batches and heads before; draws of a query
} Draws;
// Philox 4x32-10 for four neighbouring keys of a query: bit i is whether the i-th is kept.
ALWAYS_INLINE uint draw_kept(const Draws o, const int query, const int key) {
  const ulong seed = as_ulong(o.state[0]), offset = as_ulong(o.state[1]),
              counter = (o.queries_before + query) * o.per_query + key / 4;
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32), x = (uint)offset, y = (uint)(offset >> 32), z = (uint)counter,
       w = (uint)(counter >> 32);
  OCL_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint high0 = mul_hi(x, 0xD2511F53u), low0 = x * 0xD2511F53u, high1 = mul_hi(z, 0xCD9E8D57u),
               low1 = z * 0xCD9E8D57u;
    x = high1 ^ y ^ k0;
    y = low1;
    z = high0 ^ w ^ k1;
    w = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#define KEPT_BIT(x, i) ((uint)((float)((x) >> 8) * 0x1p-24f >= DROP) << (i))
  return KEPT_BIT(x, 0) | KEPT_BIT(y, 1) | KEPT_BIT(z, 2) | KEPT_BIT(w, 3);
}
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
// Bit i % 32 of kept[i / 32]: whether s[i] is kept. A draw stands for keys of several lanes: each lane makes as many
// draws as it needs, of 32 scores eight, and lanes exchange their bits. Rows are queries: lanes 2n and 2n + 1 draw for
// the upper and the lower row. Rows are keys: four lanes with the keys of a draw draw for two columns and two rows
// each, a block of 4x4 bits that they transpose.
ALWAYS_INLINE void draw(uint* kept, const Draws o, const int row, const int c0) {
  const int lane = get_local_id(0) & 31, m = lane >> 2 & 3;
  OCL_UNROLL
  for (int part = 0; part < TILE_C / 64; ++part) {
    uint own = 0;
    OCL_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int c = c0 + part * 64 + j * 8;
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
    kept[part] =
        m & 2 ? (own & 0xCCCCCCCCu) | (other >> 2 & 0x33333333u) : (own & 0x33333333u) | (other << 2 & 0xCCCCCCCCu);
#else
    const uint other = lane_bits(own, 1);
    kept[part] =
        lane & 1 ? (own & 0xCCCCCCCCu) | (other >> 2 & 0x33333333u) : (own & 0x33333333u) | (other << 2 & 0xCCCCCCCCu);
#endif
  }
}
ALWAYS_INLINE void drop(float* s, const uint* kept) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; ++i) s[i] *= kept[i >> 5] >> (i & 31) & 1 ? KEPT : 0.0f;
}
#define DRAW(kept, row, c0) draw(kept, draws, row, c0)
#define DROP_SCORES(s, kept) drop(s, kept)
#else
#define DRAW(kept, row, c0)
#define DROP_SCORES(s, kept)
#endif

#if PASS == 0
// Of a row, whose elements four neighbouring lanes hold, the maximum or the sum.
ALWAYS_INLINE float across_row(float x, const int is_max) {
  float y;
  OTHER_LANE(y, x, 1);
  x = is_max ? (y > x ? y : x) : x + y;
  OTHER_LANE(y, x, 2);
  return is_max ? (y > x ? y : x) : x + y;
}

// Scores become weights exp(s - top); the running maximum and sum of both rows move on. fade: what earlier weights are
// multiplied by.
ALWAYS_INLINE void weigh(float* s, float* top, float* total, float* fade) {
  OCL_UNROLL
  for (int half_ = 0; half_ < 2; ++half_) {
    float most = top[half_], sum = 0.0f;
    OCL_UNROLL
    for (int i = 0; i < TILE_C / 4; ++i) {
      const float x = s[i / 2 * 4 + 2 * half_ + i % 2];
      most = x > most ? x : most;
    }
    most = across_row(most, 1);
    const float shift = most == -INFINITY ? 0.0f : -most * TO_LOG2;
    fade[half_] = exp2_of(fma(top[half_], TO_LOG2, shift));
    OCL_UNROLL
    for (int i = 0; i < TILE_C / 4; ++i) {
      const int at = i / 2 * 4 + 2 * half_ + i % 2;
      s[at] = exp2_of(fma(s[at], TO_LOG2, shift));
      sum += s[at];
    }
    total[half_] = fma(total[half_], fade[half_], sum);
    top[half_] = most;
  }
}
ALWAYS_INLINE void fade_rows(float* out, const float* fade) {
  OCL_UNROLL
  for (int i = 0; i < DEPTH_TILE / 2; ++i) out[i] *= fade[i >> 1 & 1];
}

// Both rows of the output, and their maxima and sums, in a kernel with batch, head, queries and keys.
#define STORE_ATTENTION(out, top, total, row)                                                       \
  {                                                                                                 \
    const int q_of = get_local_id(0) & 3;                                                           \
    OCL_UNROLL                                                                                      \
    for (int half_ = 0; half_ < 2; ++half_) {                                                       \
      const int r = (row) + 8 * half_;                                                              \
      const float sum = across_row((total)[half_], 0);                                              \
      const float inverse = keys == 0 ? 0.0f : sum == 0.0f ? (NAN_ROWS ? NAN : 0.0f) : 1.0f / sum;  \
      if (r < queries) {                                                                            \
        if (q_of == 0) {                                                                            \
          STORE1((top)[half_] == -INFINITY ? 0.0f : (top)[half_] * SCORE_SCALE, 0, batch, head, r); \
          STORE1(sum, 1, batch, head, r);                                                           \
        }                                                                                           \
        OCL_UNROLL                                                                                  \
        for (int j = 0; j < DEPTH_TILE / 8; ++j) {                                                  \
          const int d = j * 8 + q_of * 2, at = 4 * j + 2 * half_;                                   \
          if (d + 1 < WIDTH)                                                                        \
            STOREV((float2)((out)[at] * inverse, (out)[at + 1] * inverse), batch, head, r, d);      \
          else if (d < WIDTH)                                                                       \
            STORE((out)[at] * inverse, batch, head, r, d);                                          \
        }                                                                                           \
      }                                                                                             \
    }                                                                                               \
  }
#else
// What is known of queries: most and total by [which][query], delta.
typedef struct {
  __global const float *sums, *delta;
  long which;
  int queries;
} Statistics;
// (weight, delta) of a query; outside the weight is infinite: p is zero.
ALWAYS_INLINE float2 statistics_of(const Statistics o, const int query) {
  if (query >= o.queries) return (float2)(INFINITY, 0.0f);
  const float most = o.sums[query], total = o.sums[o.which + query];
  return (float2)(total == 0.0f ? (NAN_ROWS ? NAN : INFINITY) : fma(most, LOG2E, log2(total)), o.delta[query]);
}

// Of two neighbouring columns, those with i and i + 1: weights, deltas. queries: of this lane's first columns (PASS 2);
// of_rows: of both rows (PASS 1).
#define STATISTIC(i, which) \
  (ROWS_ARE_KEYS ? queries[(which) * TILE_C / 2 + (i) / 4 * 4] : (float2)(of_rows[2 * (which) + ((i) >> 1 & 1)]))
// Scores become p.
ALWAYS_INLINE void weigh(float* s, __local const float2* queries, const float* of_rows) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; i += 2) {
    const float2 weight = STATISTIC(i, 0);
    s[i] = exp2_of(fma(s[i], TO_LOG2, -weight.x));
    s[i + 1] = exp2_of(fma(s[i + 1], TO_LOG2, -weight.y));
  }
}
// ds of p.
ALWAYS_INLINE void differ(float* ds, const float* p, const float* grad, __local const float2* queries,
                          const float* of_rows) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; i += 2) {
    const float2 delta = STATISTIC(i, 1);
    ds[i] = p[i] * (grad[i] - delta.x);
    ds[i + 1] = p[i + 1] * (grad[i + 1] - delta.y);
  }
}

// Both rows of the results, in a kernel with batch, head and rows.
#if PASS == 2
#define STORE_SECOND(out2, r, d, at)                                  \
  if (d + 1 < DEPTH2)                                                 \
    STORE1V((float2)((out2)[at], (out2)[at + 1]), batch, head, r, d); \
  else if (d < DEPTH2)                                                \
    STORE1((out2)[at], batch, head, r, d);
#else
#define STORE_SECOND(out2, r, d, at)
#endif
#define STORE_GRADIENTS(out, out2, row)                                                \
  {                                                                                    \
    OCL_UNROLL                                                                         \
    for (int half_ = 0; half_ < 2; ++half_) {                                          \
      const int r = (row) + 8 * half_;                                                 \
      if (r < rows) {                                                                  \
        OCL_UNROLL                                                                     \
        for (int j = 0; j < DEPTH_TILE / 8; ++j) {                                     \
          const int d = j * 8 + (get_local_id(0) & 3) * 2, at = 4 * j + 2 * half_;     \
          if (d + 1 < DEPTH)                                                           \
            STOREV((float2)(out[at] * SCALE, out[at + 1] * SCALE), batch, head, r, d); \
          else if (d < DEPTH)                                                          \
            STORE(out[at] * SCALE, batch, head, r, d);                                 \
          STORE_SECOND(out2, r, d, at)                                                 \
        }                                                                              \
      }                                                                                \
    }                                                                                  \
  }
#endif
