// kernels/attention/shared_warpgroup.cl: what the kernels of attention on the matrix unit share: staging of rows,
// products of tiles. Comes after tensor_core/warpgroup.cl and
// attention/scores.cl.
//
// A group has TILE_M rows of the scores, 64 a consumer, and walks over TILE_C columns a step: rows are queries and
// columns keys, or the other way round in the gradient of keys and values (PASS 2).
// TILE_C, columns of a step: 64; also 128 with operands of 16 bits. TILE_N (operands of 32 bits): 64
// DEPTH_TILE, elements of a row in local memory, zeros behind the head sizes: 64; also 128 with operands of 16 bits
#if defined(__clang__) || defined(OCL_HAS_UNROLL_HINT)
#define OCL_UNROLL_8 __attribute__((opencl_unroll_hint(8)))
#else
#define OCL_UNROLL_8
#endif

// 32 bits: of 128 producers, 8 neighbours go down the depth of what is transposed, 4 columns wide.
ALWAYS_INLINE int value_column(const int p) {
  return (p >> 3) * 4;
}

// rows x DEPTH_TILE of an operand as it lies in memory, `left` of its rows and `depth` of each inside.
ALWAYS_INLINE void stage_rows(__local UNIT_T* to, __global const UNIT_T* from, const long stride, const int left,
                              const int depth, const int rows, const int direct) {
  const int p = get_local_id(0) - CONSUMERS * 128, chunk = p & 7;
  OCL_UNROLL
  for (int block = 0; block < DEPTH_TILE / TILE_K; ++block) {
    const int d = block * TILE_K + chunk * CHUNK;
    if (direct) {
      OCL_UNROLL_8
      for (int row = p >> 3; row < rows; row += ROWS_APART) {
        const int valid = row < left ? depth - d : 0;
        stage_chunk(to + block * rows * TILE_K + row_chunk(row, chunk), valid > 0 ? from + row * stride + d : from, 1,
                    valid, 1);
      }
    } else {
      OCL_NO_UNROLL
      for (int row = p >> 3; row < rows; row += ROWS_APART)
        stage_chunk(to + block * rows * TILE_K + row_chunk(row, chunk), from + row * stride + d, 1,
                    row < left ? depth - d : 0, 0);
    }
  }
}

// ---- consumer ----
#if HALVES
// s[4*j + 2*half + e]: of TILE_C / 8 blocks of 8 columns, row r + 8 * half, column 8*j + 2*(lane % 4) + e. q: the
// group's rows.
ALWAYS_INLINE void begin_scores(float* s, __local const UNIT_T* q, __local const UNIT_T* k) {
  // 16 of the depth are 2 units further
  const ulong a = descriptor(q + (get_local_id(0) >> 7) * 64 * TILE_K, 1), b = descriptor(k, 1);
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
ALWAYS_INLINE void add_blocks(float* total, const uint* high, const uint* low, __local const UNIT_T* b_tile,
                              const int first) {
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
// As begin_values, and waits; `left` of the columns are inside. v: [DEPTH_TILE][32] twice, of columns in the order in
// which lanes have p: position i of eight neighbours stands for column 2i (i < 4) or 2(i - 4) + 1.
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
