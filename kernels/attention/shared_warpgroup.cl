// kernels/attention/shared_warpgroup.cl: what attention and its gradients on warpgroup tensor cores share: staging of
// rows, products of tiles. Comes after tensor_core/warpgroup.cl and attention/scores.cl.
//
// A work-group has TILE_M rows of the scores, 64 for each consumer, and takes TILE_C columns in each step. Rows are
// queries and columns are keys. In the gradient of keys and values (PASS 2) it is the other way round.
//   TILE_C      columns of a step: 64, or 128 with operands of 16 bits
//   TILE_N      64 (used with operands of 32 bits)
//   DEPTH_TILE  elements of a row in local memory, zeros behind the head size: 64, or 128 with operands of 16 bits
#if defined(__clang__) || defined(OCL_HAS_UNROLL_HINT)
#define OCL_UNROLL_8 __attribute__((opencl_unroll_hint(8)))
#else
#define OCL_UNROLL_8
#endif

// 32 bits: the first column that producer p transposes. Eight neighbouring producers share 4 columns.
ALWAYS_INLINE int value_column(const int p) {
  return (p >> 3) * 4;
}

// Stages rows x DEPTH_TILE of an operand, without a transposition. `left` rows and `depth` elements of each row are
// inside the matrix.
ALWAYS_INLINE void stage_rows(__local OPERAND_T* to, __global const OPERAND_T* from, const long stride, const int left,
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
// Passes over stages begin .. end - 1, whose columns this warpgroup does not need.
ALWAYS_INLINE void skip_stages(const Pipeline line, const int begin, const int end) {
  for (int stage = begin; stage < end; ++stage) {
    consumer_wait(line, stage);
    consumer_release(line, stage);
  }
}
#if HALVES
// Begins s = q k^T of a step; s as in attention/scores.cl. q: the rows of the work-group.
ALWAYS_INLINE void begin_scores(float* s, __local const OPERAND_T* q, __local const OPERAND_T* k) {
  // A descriptor advances by 2 (32 bytes) for 16 of the depth.
  const ulong a = descriptor(q + (get_local_id(0) >> 7) * 64 * TILE_K, 1), b = descriptor(k, 1);
  WGMMA_FENCE();
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
  WGMMA_COMMIT();
}
// Rounds the weights of a step to the operands' type. Sums of s already lie where wgmma takes an operand from.
ALWAYS_INLINE void to_operands(uint* p, const float* s) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 4; ++i) p[i] = two_halves(s[2 * i], s[2 * i + 1]);
}
// Begins out += p v. v is read with its columns contiguous. out has DEPTH_TILE columns, ordered like those of s.
ALWAYS_INLINE void begin_values(float* out, const uint* p, __local const OPERAND_T* v) {
  const ulong b = descriptor_of(v, TILE_C * TILE_K * 2);  // 16 keys are 16 rows of 128 bytes
  WGMMA_FENCE();
  OCL_UNROLL
  for (int k16 = 0; k16 < TILE_C / 16; ++k16)
    OCL_CAT(MULTIPLY_A_REGISTERS_, DEPTH_TILE)(out, p + 4 * k16, b + 128 * k16);
  WGMMA_COMMIT();
}
#else
// Blocks of 32 of the depth that share a running sum. With TF32 alone a sum goes over both, as with 16-bit operands.
#define BLOCKS (TERMS == 3 ? 1 : 2)
// total = a b over BLOCKS blocks of the depth, or total += a b if they are not the first. b_tile: their first block.
ALWAYS_INLINE void add_blocks(float* row_sum, const uint* high, const uint* low, __local const OPERAND_T* b_tile,
                              const int first) {
  const ulong b = descriptor(b_tile, 1);
#if TERMS == 3
  float sum[TILE_N / 2];
#else
  float* sum = row_sum;
#endif
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i)
    if (TERMS == 3 || first) sum[i] = 0.0f;
  WGMMA_FENCE();
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
  WGMMA_FINISH();
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) {
    FENCE_REGISTER(sum[i]);
#if TERMS == 3
    row_sum[i] = first ? sum[i] : row_sum[i] + sum[i];
#endif
  }
}
// Computes s = q k^T of a step, and waits for the sums.
ALWAYS_INLINE void multiply_scores(float* s, __local const OPERAND_T* q, __local const OPERAND_T* k) {
  OCL_UNROLL
  for (int block = 0; block < 2; block += BLOCKS) {
    uint high[16 * BLOCKS], low[16 * BLOCKS];
    OCL_UNROLL
    for (int k8 = 0; k8 < 4 * BLOCKS; ++k8) {
      float x[4];
      read_fragment(x, q + (block + k8 / 4) * TILE_M * TILE_K, k8 & 3, 1);
      split_fragment(high, low, k8, x);
    }
    add_blocks(s, high, low, k + block * PIECES * B_ELEMENTS, block == 0);
  }
}
// Computes out += p v, and waits for the sums. `left` columns of p are inside the matrix. v: two blocks of 32 columns
// of p, each [DEPTH_TILE][32]. The columns are permuted as lanes hold p: position i of eight neighbours is column 2i (i
// < 4) or 2(i - 4) + 1.
ALWAYS_INLINE void add_values(float* out, const float* p, __local const OPERAND_T* v, const int left) {
  OCL_UNROLL
  for (int block = 0; block < 2; block += BLOCKS) {
    uint high[16 * BLOCKS], low[16 * BLOCKS];
    OCL_UNROLL
    for (int k8 = 0; k8 < 4 * BLOCKS; ++k8) {
      const float* of = p + block * 16 + 4 * k8;
      const float x[4] = {of[0], of[2], of[1], of[3]};
      split_fragment(high, low, k8, x);
    }
    if (block * TILE_K < left) add_blocks(out, high, low, v + block * PIECES * B_ELEMENTS, 0);
  }
}
#endif
