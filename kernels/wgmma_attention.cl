// kernels/wgmma_attention.cl: what the kernels of attention on the matrix unit share: staging of rows, products of tiles, what is hidden. Comes after wgmma.cl.
//
// A group has TILE_M rows of the scores, 64 a consumer, and walks over TILE_C columns a step: rows are queries and columns keys, or the other way round
// in the gradient of keys and values (PASS 2).
#ifndef PASS
#define PASS 0              // 0: attention; 1: gradient of queries; 2: of keys and values
#endif
#define ROWS_ARE_KEYS (PASS == 2)
// TILE_C, columns of a step: 64; also 128 with operands of 16 bits. TILE_N (operands of 32 bits): 64
// DEPTH_TILE, elements of a row in local memory, zeros behind the head sizes: 64; also 128 with operands of 16 bits
#ifndef DEPTH
#define DEPTH 64            // head size of q and k, elements
#endif
#ifndef WIDTH
#define WIDTH 64            // size of a row of the output: PASS 0: head size of v, else DEPTH
#endif
#ifndef DIRECT
#define DIRECT 0            // 1: all sizes and strides of rows are multiples of 16 bytes
#endif
#ifndef SCALE
#define SCALE 0.125f        // of the scores
#endif
#ifndef CAUSAL
#define CAUSAL 0            // 1: query i sees keys j <= i
#endif
#ifndef MASK
#define MASK 0              // 1: bool, false is not seen; 2: IN_T, added; 3: float, added
#endif
#ifndef NAN_ROWS
#define NAN_ROWS 0          // 1: a query that sees no key gives nan; 0: zero
#endif
#ifndef DROPOUT
#define DROPOUT 0           // 1: elements of p are dropped with probability DROP, the others multiplied by KEPT
#endif
#ifndef DROP
#define DROP 0.5f
#define KEPT 2.0f
#endif

#if MASK == 1
#define MASK_T uchar
#elif MASK == 2
#define MASK_T IN_T
#else
#define MASK_T float
#endif
#define LOG2E 1.44269504f
#if MASK
#define SCORE_SCALE 1.0f    // of the scores in registers: a mask is added to scaled ones
#else
#define SCORE_SCALE SCALE
#endif
#define TO_LOG2 (SCORE_SCALE * LOG2E)

#if defined(__clang__) || defined(OCL_HAS_UNROLL_HINT)
#define OCL_UNROLL_8 __attribute__((opencl_unroll_hint(8)))
#else
#define OCL_UNROLL_8
#endif

// rows x DEPTH_TILE of an operand as it lies in memory, `left` of its rows and `depth` of each inside.
ALWAYS_INLINE void stage_rows(__local UNIT_T* to, __global const UNIT_T* from, const long stride, const int left, const int depth, const int rows,
                              const int direct) {
  const int p = get_local_id(0) - CONSUMERS * 128, chunk = p & 7;
  OCL_UNROLL
  for (int block = 0; block < DEPTH_TILE / TILE_K; ++block) {
    const int d = block * TILE_K + chunk * CHUNK;
    if (direct) {
      OCL_UNROLL_8
      for (int row = p >> 3; row < rows; row += ROWS_APART) {
        const int valid = row < left ? depth - d : 0;
        stage_chunk(to + block * rows * TILE_K + row_chunk(row, chunk), valid > 0 ? from + row * stride + d : from, 1, valid, 1);
      }
    } else {
      OCL_NO_UNROLL
      for (int row = p >> 3; row < rows; row += ROWS_APART)
        stage_chunk(to + block * rows * TILE_K + row_chunk(row, chunk), from + row * stride + d, 1, row < left ? depth - d : 0, 0);
    }
  }
}

// ---- consumer ----
#if HALVES
// s[4*j + 2*half + e]: of TILE_C / 8 blocks of 8 columns, row r + 8 * half, column 8*j + 2*(lane % 4) + e. q: the group's rows.
ALWAYS_INLINE void begin_scores(float* s, __local const UNIT_T* q, __local const UNIT_T* k) {
  const ulong a = descriptor(q + (get_local_id(0) >> 7) * 64 * TILE_K, 1), b = descriptor(k, 1);  // 16 of the depth are 2 units further
  UNIT_BEGIN();
  OCL_CAT(MULTIPLY_, TILE_C)(s, a, b, "0", "0, 0");
  OCL_CAT(MULTIPLY_, TILE_C)(s, a + 2, b + 2, "1", "0, 0");
  OCL_CAT(MULTIPLY_, TILE_C)(s, a + 4, b + 4, "1", "0, 0");
  OCL_CAT(MULTIPLY_, TILE_C)(s, a + 6, b + 6, "1", "0, 0");
#if DEPTH_TILE == 128
  const ulong a2 = a + TILE_M * TILE_K / 8, b2 = b + TILE_C * TILE_K / 8;
  OCL_CAT(MULTIPLY_, TILE_C)(s, a2, b2, "1", "0, 0");
  OCL_CAT(MULTIPLY_, TILE_C)(s, a2 + 2, b2 + 2, "1", "0, 0");
  OCL_CAT(MULTIPLY_, TILE_C)(s, a2 + 4, b2 + 4, "1", "0, 0");
  OCL_CAT(MULTIPLY_, TILE_C)(s, a2 + 6, b2 + 6, "1", "0, 0");
#endif
  UNIT_COMMIT();
}
// Weights as the unit takes them.
ALWAYS_INLINE void hold(uint* p, const float* s) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 4; ++i) p[i] = two_halves(s[2 * i], s[2 * i + 1]);
}
// out += p v, which the unit reads with its columns contiguous: of DEPTH_TILE / 8 blocks of 8 elements of a row, as s.
ALWAYS_INLINE void begin_values(float* out, const uint* p, __local const UNIT_T* v) {
  const ulong b = descriptor_of(v, TILE_C * TILE_K * 2);  // 16 keys are 16 rows of 128 bytes
  UNIT_BEGIN();
  OCL_UNROLL
  for (int k16 = 0; k16 < TILE_C / 16; ++k16) OCL_CAT(MULTIPLY_HELD_, DEPTH_TILE)(out, p + 4 * k16, b + 128 * k16);
  UNIT_COMMIT();
}
#else
// Blocks of 32 of the depth that are multiplied together. TF32: sums stay in the unit, as those of 16-bit operands do.
#define BLOCKS (TERMS == 3 ? 1 : 2)
// total = a b over BLOCKS blocks, or += if they are not the first. b: of a tile.
ALWAYS_INLINE void add_blocks(float* total, const uint* high, const uint* low, __local const UNIT_T* b_tile, const int first) {
  const ulong b = descriptor(b_tile, 1);
#if TERMS == 3
  float sum[TILE_N / 2];
#else
  float* sum = total;
#endif
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i)
    if (TERMS == 3 || first) sum[i] = 0.0f;
  UNIT_BEGIN();
#if TERMS == 3
  MULTIPLY_SPLIT(sum, high, low, b);
#else
  MULTIPLY(sum, high, b, "1");
  MULTIPLY(sum, high + 4, b + 2, "1");
  MULTIPLY(sum, high + 8, b + 4, "1");
  MULTIPLY(sum, high + 12, b + 6, "1");
  MULTIPLY(sum, high + 16, b + B_ELEMENTS / 4, "1");
  MULTIPLY(sum, high + 20, b + B_ELEMENTS / 4 + 2, "1");
  MULTIPLY(sum, high + 24, b + B_ELEMENTS / 4 + 4, "1");
  MULTIPLY(sum, high + 28, b + B_ELEMENTS / 4 + 6, "1");
#endif
  UNIT_END();
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) {
    READY(sum[i]);
#if TERMS == 3
    total[i] = first ? sum[i] : total[i] + sum[i];
#endif
  }
}
// As begin_scores, and waits.
ALWAYS_INLINE void multiply_scores(float* s, __local const UNIT_T* q, __local const UNIT_T* k) {
  OCL_UNROLL
  for (int block = 0; block < 2; block += BLOCKS) {
    uint high[16 * BLOCKS], low[16 * BLOCKS];
    OCL_UNROLL
    for (int k8 = 0; k8 < 4 * BLOCKS; ++k8) {
      float x[4];
      read_fragment(x, q + (block + k8 / 4) * TILE_M * TILE_K, k8 & 3, 1);
      split_fragment(high, low, k8, x);
    }
    add_blocks(s, high, low, k + block * PARTS * B_ELEMENTS, block == 0);
  }
}
// As begin_values, and waits; `left` of the columns are inside. v: [DEPTH_TILE][32] twice, of columns in the order in which lanes have p: position i of eight
// neighbours stands for column 2i (i < 4) or 2(i - 4) + 1.
ALWAYS_INLINE void add_values(float* out, const float* p, __local const UNIT_T* v, const int left) {
  OCL_UNROLL
  for (int block = 0; block < 2; block += BLOCKS) {
    uint high[16 * BLOCKS], low[16 * BLOCKS];
    OCL_UNROLL
    for (int k8 = 0; k8 < 4 * BLOCKS; ++k8) {
      const float* of = p + block * 16 + 4 * k8;
      const float x[4] = {of[0], of[2], of[1], of[3]};
      split_fragment(high, low, k8, x);
    }
    if (block * TILE_K < left) add_blocks(out, high, low, v + block * PARTS * B_ELEMENTS, 0);
  }
}
#endif

// The scores of columns c0 .. with their mask added, -inf where nothing is seen. row: of s[0].
ALWAYS_INLINE void hide(float* s, int c0, int row, const int queries, const int keys
#if MASK
                        , __global const MASK_T* mask, const long mask_query, const long mask_key
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
#define HIDE_SCORES(c0) hide(s, c0, row, queries, keys, mask, mask_query, mask_key)
#else
#define HIDE_SCORES(c0) \
  if ((c0) + TILE_C > (ROWS_ARE_KEYS ? queries : keys) || (CAUSAL && (ROWS_ARE_KEYS ? first + 63 > (c0) : (c0) + TILE_C - 1 > first))) \
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
  const ulong seed = as_ulong(o.state[0]), offset = as_ulong(o.state[1]), counter = (o.queries_before + query) * o.per_query + key / 4;
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32), x = (uint)offset, y = (uint)(offset >> 32), z = (uint)counter, w = (uint)(counter >> 32);
  OCL_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint high0 = mul_hi(x, 0xD2511F53u), low0 = x * 0xD2511F53u, high1 = mul_hi(z, 0xCD9E8D57u), low1 = z * 0xCD9E8D57u;
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
  if (bit == 1) OTHER_LANE(y, as_float(x), 1);
  else if (bit == 4) OTHER_LANE(y, as_float(x), 4);
  else OTHER_LANE(y, as_float(x), 8);
  return as_uint(y);
}
// Bit i % 32 of kept[i / 32]: whether s[i] is kept. A draw stands for keys of several lanes: each lane makes as many draws as it needs, of 32 scores eight,
// and lanes exchange their bits. Rows are queries: lanes 2n and 2n + 1 draw for the upper and the lower row. Rows are keys: four lanes with the keys of a draw
// draw for two columns and two rows each, a block of 4x4 bits that they transpose.
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
    kept[part] = m & 2 ? (own & 0xCCCCCCCCu) | (other >> 2 & 0x33333333u) : (own & 0x33333333u) | (other << 2 & 0xCCCCCCCCu);
#else
    const uint other = lane_bits(own, 1);
    kept[part] = lane & 1 ? (own & 0xCCCCCCCCu) | (other >> 2 & 0x33333333u) : (own & 0x33333333u) | (other << 2 & 0xCCCCCCCCu);
#endif
  }
}
ALWAYS_INLINE void drop(float* s, const uint* kept) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; ++i) s[i] *= kept[i >> 5] >> (i & 31) & 1 ? KEPT : 0.0f;
}
#define DRAW(c0) draw(kept, draws, row, c0)
#define DROP_SCORES(s) drop(s, kept)
#else
#define DRAW(c0)
#define DROP_SCORES(s)
#endif
