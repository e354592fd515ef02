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
#endif

// The scores of columns c0 .. with their mask added, -inf where nothing is seen. row: of s[0].
ALWAYS_INLINE void hide(float* s, const int c0, const int row, const int queries, const int keys
#if MASK
                        , __global const MASK_T* mask, const long mask_query, const long mask_key
#endif
) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 2; ++i) {
    const int r = row + (i >> 1 & 1) * 8, c = c0 + (i >> 2) * 8 + (get_local_id(0) & 3) * 2 + (i & 1);
    const int query = ROWS_ARE_KEYS ? c : r, key = ROWS_ARE_KEYS ? r : c;
    const int seen = query < queries && key < keys && !(CAUSAL && key > query);
#if MASK
    s[i] *= SCALE;
    if (seen) {
      __global const MASK_T* m = mask + query * mask_query + key * mask_key;
#if MASK == 1
      if (!*m) s[i] = -INFINITY;
#elif MASK == 2
      s[i] += LOAD((__global const IN_T*)m, 0);
#else
      s[i] += *m;
#endif
    }
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
