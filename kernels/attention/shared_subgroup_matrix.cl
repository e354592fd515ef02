// kernels/attention/shared_subgroup_matrix.cl: what attention and its gradients by matrix instructions of a subgroup
// share: copies of rows, products, masks, dropout, stores. Comes after tensor_core/subgroup_matrix.cl and
// attention/single_scores.cl.
//
// Scores are computed transposed, so that a lane has scores of one row of the attention (a query; a key with PASS 2),
// and a row's softmax needs the lanes of one column of a fragment only: one lane with DPAS, otherwise two.
//
//   scores^T [columns][rows]  = b [columns][depth] * a^T [depth][rows]       columns in ordered fragments
//   result^T [depth][rows]   += w^T [depth][columns] * weights^T             weights from registers (ordered_b)
//
// A work-group has TILE_M rows, a subgroup SUB_M of them, in ROW_FRAGS fragments. A step has TILE_C columns. PARTS
// subgroups have the same rows: each computes a part of the depth of their results. So the results of large heads fit in
// registers. In the forward pass each computes all scores of the rows. In a gradient (SHARED) each computes the scores of
// a part of the columns, and they exchange the weights through local memory.
//   s[r * COLUMN_FRAGS + c]    fragment of scores: columns c * FRAG_M, rows r * FRAG_N of the subgroup
//   out[r * DEPTH_FRAGS + d]   fragment of results: depth d * FRAG_M of the part, the same rows
//   DEPTH_TILE                 the larger head size, rounded up to a multiple of 32
#define PARTS SUBS_N
#define SHARED (PASS && PARTS > 1)
#define SCORE_COLUMNS (SHARED ? TILE_C / PARTS : TILE_C)  // columns of a step whose scores a subgroup computes
#define ROW_FRAGS (SUB_M / FRAG_N)
#define COLUMN_FRAGS (SCORE_COLUMNS / FRAG_M)
#define DEPTH_FRAGS (DEPTH_TILE / PARTS / FRAG_M)
#define SCORES (COLUMN_FRAGS * LANE_SUMS)  // scores of a lane in a step, for one row
#define KEEP_WORDS ((SCORES + 31) / 32)
// Elements from a row of a tile in local memory to the next: an odd number of chunks.
#define DEPTH_ROW (DEPTH_TILE + CHUNK)
#define COLUMN_ROW (TILE_C + CHUNK)

// Return the first row of the subgroup in the work-group, and the first element of its parts of the depth and the columns.
ALWAYS_INLINE int sub_row(void) {
  return get_local_id(0) / LANES / PARTS * SUB_M;
}
ALWAYS_INLINE int sub_depth(void) {
  return get_local_id(0) / LANES % PARTS * (DEPTH_TILE / PARTS);
}
ALWAYS_INLINE int sub_column(void) {
  return SHARED ? get_local_id(0) / LANES % PARTS * SCORE_COLUMNS : 0;
}

// Copies `rows` rows of an operand, `stride` elements apart, to a tile [rows][DEPTH_ROW]. `left` of the rows, and `depth`
// elements of each, are inside the matrix; zeros are written for the others. direct: 1 if rows lie at multiples of 16
// bytes. Chunks that are not whole are copied by elements in a loop, which takes few registers.
ALWAYS_INLINE void stage_rows(__local OPERAND_T* to, __global const OPERAND_T* from, const long stride, const int left,
                              const int depth, const int rows, const int direct) {
  OCL_NO_UNROLL
  for (int at = get_local_id(0); at < rows * (DEPTH_TILE / CHUNK); at += GROUP_SIZE) {
    const int row = at / (DEPTH_TILE / CHUNK), d = at % (DEPTH_TILE / CHUNK) * CHUNK,
              inside = row < left ? depth - d : 0;
    __global const OPERAND_T* chunk = from + row * stride + d;
    __local OPERAND_T* kept = to + row * DEPTH_ROW + d;
    if (direct && inside >= CHUNK) {
      *(__local uint4*)kept = *(__global const uint4*)chunk;
    } else {
      OCL_NO_UNROLL
      for (int e = 0; e < CHUNK; ++e) kept[e] = e < inside ? chunk[e] : 0;
    }
  }
}
// The rows that weights multiply become a tile of TURNED chunks, which read_turned reads: element [0][0] of the fragment
// at (depth d, column c) is the tile's element TURNED_AT(d, c).
#if defined(MATRIX_DPAS)  // A lane has columns of the transposed A, so rows stay as they are.
#define TRANSPOSES 0
#define TURNED (TILE_C * DEPTH_ROW / CHUNK)
#define TURNED_AT(d, c) ((c) * DEPTH_ROW + (d))
#define READ_TURNED(from) read_turned_a(from, DEPTH_ROW)
#define stage_turned(to, from, stride, left, depth, direct) stage_rows(to, from, stride, left, depth, TILE_C, direct)
#else
#define TRANSPOSES 1
#define TURNED (DEPTH_TILE * COLUMN_ROW / CHUNK)
#define TURNED_AT(d, c) ((d) * COLUMN_ROW + (c))
#define READ_TURNED(from) read_ordered_a(from, COLUMN_ROW)
// Copies TILE_C rows to a tile [DEPTH_TILE][COLUMN_ROW], transposed.
ALWAYS_INLINE void stage_turned(__local OPERAND_T* to, __global const OPERAND_T* from, const long stride,
                                const int left, const int depth, const int direct) {
  OCL_NO_UNROLL
  for (int at = get_local_id(0); at < DEPTH_TILE / CHUNK * (TILE_C / DEPTHS); at += GROUP_SIZE) {
    const int row = at % (TILE_C / DEPTHS) * DEPTHS, d = at / (TILE_C / DEPTHS) * CHUNK;
    __global const OPERAND_T* chunk = from + row * stride + d;
    __local OPERAND_T* kept = to + d * COLUMN_ROW + row;
    if (direct && row + DEPTHS <= left && d + CHUNK <= depth) {
      uint4 held[DEPTHS];
      OCL_UNROLL
      for (int j = 0; j < DEPTHS; ++j) held[j] = *(__global const uint4*)(chunk + j * stride);
      keep_transposed(kept, held, COLUMN_ROW);
    } else {
      OCL_NO_UNROLL
      for (int e = 0; e < CHUNK * DEPTHS; ++e)
        kept[e / DEPTHS * COLUMN_ROW + e % DEPTHS] =
            row + e % DEPTHS < left && d + e / DEPTHS < depth ? chunk[e % DEPTHS * stride + e / DEPTHS] : 0;
    }
  }
}
#endif

#if defined(MATRIX_DPAS) || PASS
#define UNROLL_DEPTH OCL_NO_UNROLL  // otherwise compilers load the operands of the whole depth first
#else
#define UNROLL_DEPTH OCL_UNROLL
#endif
// Writes to s the products of the tile's columns with the subgroup's rows, which begin at `rows`, over `depth` elements.
ALWAYS_INLINE void multiply_scores(FragmentC* s, __local const OPERAND_T* columns, __local const OPERAND_T* rows,
                                   const int depth) {
  OCL_UNROLL
  for (int i = 0; i < ROW_FRAGS * COLUMN_FRAGS; ++i) s[i] = (FragmentC)(0.0f);
  UNROLL_DEPTH
  for (int k = 0; k < depth; k += FRAG_K) {
    FragmentB of_rows[ROW_FRAGS];
    OCL_UNROLL
    for (int r = 0; r < ROW_FRAGS; ++r) of_rows[r] = read_b(rows + r * FRAG_N * DEPTH_ROW + k, DEPTH_ROW);
    OCL_UNROLL
    for (int c = 0; c < COLUMN_FRAGS; ++c) {
      const FragmentA of_columns = read_ordered_a(columns + c * FRAG_M * DEPTH_ROW + k, DEPTH_ROW);
      OCL_UNROLL
      for (int r = 0; r < ROW_FRAGS; ++r)
        s[r * COLUMN_FRAGS + c] = multiply(of_columns, of_rows[r], s[r * COLUMN_FRAGS + c]);
    }
  }
}
#if SHARED
typedef __local const OPERAND_T* Weights;  // [rows of the subgroup][COLUMN_ROW]
#define ROW_WEIGHTS(weights, r, at) read_b((weights) + (r) * FRAG_N * COLUMN_ROW + (at) * FRAG_K, COLUMN_ROW)
#else
typedef const FragmentC* Weights;
#define ROW_WEIGHTS(weights, r, at) ordered_b((const float*)((weights) + (r) * COLUMN_FRAGS), at)
#endif
// Adds to out the products of the transposed rows w with the weights.
ALWAYS_INLINE void add_weighted(FragmentC* out, const Weights weights, __local const OPERAND_T* w) {
  w += TURNED_AT(sub_depth(), 0);
  OCL_UNROLL
  for (int at = 0; at < TILE_C / FRAG_K; ++at) {
    FragmentB of_rows[ROW_FRAGS];
    OCL_UNROLL
    for (int r = 0; r < ROW_FRAGS; ++r) of_rows[r] = ROW_WEIGHTS(weights, r, at);
    OCL_UNROLL
    for (int d = 0; d < DEPTH_FRAGS; ++d) {
      const FragmentA of_depth = READ_TURNED(w + TURNED_AT(d * FRAG_M, at * FRAG_K));
      OCL_UNROLL
      for (int r = 0; r < ROW_FRAGS; ++r)
        out[r * DEPTH_FRAGS + d] = multiply(of_depth, of_rows[r], out[r * DEPTH_FRAGS + d]);
    }
  }
}

// Returns the column of the lane's score i, from the subgroup's first column on.
ALWAYS_INLINE int score_column(const int i) {
  return i / LANE_SUMS * FRAG_M + ordered_row(i % LANE_SUMS);
}
#if SHARED
// Writes the weights of the subgroup's rows and columns to a tile [TILE_M][COLUMN_ROW].
ALWAYS_INLINE void share_weights(__local OPERAND_T* to, const FragmentC* weights) {
  to += (sub_row() + fragment_column()) * COLUMN_ROW + sub_column();
  OCL_UNROLL
  for (int r = 0; r < ROW_FRAGS; ++r) OCL_UNROLL
  for (int i = 0; i < SCORES; i += CHUNK)
    *(__local uint4*)(to + r * FRAG_N * COLUMN_ROW + score_column(i)) =
        chunk_of((const float*)(weights + r * COLUMN_FRAGS) + i);
}
#endif
// Adds the mask to the scores of a row with columns c0 .. c0 + SCORE_COLUMNS - 1. A score whose query does not see its key
// becomes -inf. inside: 1 if all scores are those of a query and a key, which CAUSAL does not hide.
ALWAYS_INLINE void mask_scores(float* s, const int c0, const int row, const int inside, const int queries,
                               const int keys MASK_PARAMS) {
  OCL_UNROLL
  for (int i = 0; i < SCORES; ++i) {
    const int c = c0 + score_column(i), query = ROWS_ARE_KEYS ? c : row, key = ROWS_ARE_KEYS ? row : c;
    int seen = inside || (query < queries && key < keys && !(CAUSAL && key > query));
    // Positions outside the scores get the mask of the last row or column.
#if MASK == 4
    const float added =
        MASK_VALUE(batch, mask_head, inside ? query : min(query, queries - 1), inside ? key : min(key, keys - 1));
#if MASK_HIDES
    seen = seen && added == 0.0f;
#else
    s[i] = ADD_MASK(s[i] * SCALE, added);
#endif
#elif MASK
    __global const MASK_T* m = mask + min(query, queries - 1) * mask_query + min(key, keys - 1) * mask_key;
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
// Masks the scores s, unless the tile has no score that may be hidden. first: the subgroup's first row. shown: 1 if the mask
// hides no score of the tile.
#define MASK_SCORES(s, row, first, c0, shown)                                                          \
  {                                                                                                    \
    if ((c0) + SCORE_COLUMNS > (ROWS_ARE_KEYS ? queries : keys) ||                                     \
        (MASK == 4 && (first) + SUB_M > (ROWS_ARE_KEYS ? keys : queries)) ||                           \
        (CAUSAL && (ROWS_ARE_KEYS ? (first) + SUB_M - 1 > (c0) : (c0) + SCORE_COLUMNS - 1 > (first)))) \
      mask_scores(s, c0, row, 0, queries, keys MASK_PASS);                                             \
    else if (MASK && !(shown))                                                                         \
      mask_scores(s, c0, row, MASK == 4, queries, keys MASK_PASS);                                     \
  }

#if DROPOUT
// Writes to keep_bits which scores of a row are kept: bit i % 32 of keep_bits[i / 32] is 1 if s[i] is.
ALWAYS_INLINE void draw(uint* keep_bits, const Draws o, const int row, const int c0) {
  OCL_UNROLL
  for (int word = 0; word < KEEP_WORDS; ++word) keep_bits[word] = 0;
#if ROWS_ARE_KEYS
  OCL_UNROLL
  for (int i = 0; i < SCORES; ++i)
    keep_bits[i / 32] |= (draw_kept(o, c0 + score_column(i), row) >> row % 4 & 1) << i % 32;
#else
  OCL_UNROLL
  for (int i = 0; i < SCORES; i += 4) keep_bits[i / 32] |= draw_kept(o, row, c0 + score_column(i)) << i % 32;
#endif
}
ALWAYS_INLINE void drop(float* s, const uint* keep_bits) {
  OCL_UNROLL
  for (int i = 0; i < SCORES; ++i) s[i] *= keep_bits[i / 32] >> i % 32 & 1 ? KEPT : 0.0f;
}
#define DRAW(keep_bits, row, c0) draw(keep_bits, draws, row, c0)
#define DROP_SCORES(s, keep_bits) drop(s, keep_bits)
#else
#define DRAW(keep_bits, row, c0)
#define DROP_SCORES(s, keep_bits)
#endif

#if PASS == 0
// Returns the maximum (is_max 1) or the sum (is_max 0) of x over the lanes that have the row.
ALWAYS_INLINE float across_row(const float x, const int is_max) {
#if defined(MATRIX_DPAS)
  return x;
#else
  const float y = as_float(other_half(as_uint(x)));
  return is_max ? fmax(x, y) : x + y;
#endif
}
// Does one step of the running softmax of a row. It updates row_max, replaces s by exp(s - row_max), and updates
// row_sum, the sum of the lane's own columns. Returns the factor for the sums of earlier steps.
ALWAYS_INLINE float softmax_step(float* s, float* row_max, float* row_sum) {
  float largest = *row_max, sum = 0.0f;
  OCL_UNROLL
  for (int i = 0; i < SCORES; ++i) largest = fmax(s[i], largest);
  largest = across_row(largest, 1);
  const float shift = largest == -INFINITY ? 0.0f : -largest * TO_LOG2,
              rescale = exp2_of(fma(*row_max, TO_LOG2, shift));
  OCL_UNROLL
  for (int i = 0; i < SCORES; ++i) {
    s[i] = exp2_of(fma(s[i], TO_LOG2, shift));
    sum += s[i];
  }
  *row_sum = fma(*row_sum, rescale, sum);
  *row_max = largest;
  return rescale;
}
#endif

// Stores the lane's results `out` of a row, times `factor`. STORE_VECTOR, STORE_ONE: macros of the epilogue. The calling
// kernel must have the variables batch and head.
#define STORE_ROW(STORE_VECTOR, STORE_ONE, out, r, width, factor)                  \
  OCL_UNROLL                                                                       \
  for (int at = 0; at < DEPTH_FRAGS * LANE_SUMS; at += VW) {                       \
    const float* sums = (const float*)(out) + at;                                  \
    const int d = sub_depth() + score_column(at);                                  \
    if (d + VW <= (width)) {                                                       \
      STORE_VECTOR(*(const VEC*)sums * (factor), batch, head, r, d);               \
    } else {                                                                       \
      OCL_UNROLL                                                                   \
      for (int l = 0; l < VW; ++l)                                                 \
        if (d + l < (width)) STORE_ONE(sums[l] * (factor), batch, head, r, d + l); \
    }                                                                              \
  }
