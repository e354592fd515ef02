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

// With 32-bit operands: returns the first column that producer p transposes. Eight neighbouring producers share 4
// columns.
ALWAYS_INLINE int value_column(const int p) {
  return (p >> 3) * 4;
}

// Copies `rows` rows of an operand, `stride` elements apart, to a tile with rows of DEPTH_TILE elements. `left` of the
// rows, and `depth` elements of each, are inside the matrix; zeros are written for the others. direct: as for
// stage_chunk.
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

// Waits until the consumers have released the buffer for the rows of the work-group's task n, and returns its number.
// With 16-bit operands, the producers have published all stages of the task that holds the buffer: LAG stages are not
// published yet, and the task in between has at least as many.
ALWAYS_INLINE int acquire_rows(const Pipeline line, const int n) {
  const int buffer = n % HELD_TILES;
  if (n >= HELD_TILES) barrier_wait(line.empty + 8 * (STAGES + buffer), (n / HELD_TILES - 1) & 1);
  return buffer;
}

// ---- consumer ----
// Releases the buffer for the rows of task n, which this warp has read.
ALWAYS_INLINE void release_rows(const Pipeline line, const int n) {
  consumer_release_at(line.empty + 8 * (STAGES + n % HELD_TILES));
}
// Waits for stages begin .. end - 1 and releases them unread, because this warpgroup does not need their columns.
ALWAYS_INLINE void skip_stages(const Pipeline line, const int begin, const int end) {
  for (int stage = begin; stage < end; ++stage) {
    consumer_wait(line, stage);
    consumer_release(line, stage);
  }
}
// Waits for all groups of wgmma except the `but` latest ones. `sums` must be results of a group that is waited for.
#define WAIT_SUMS(sums, count, but) \
  WGMMA_WAIT(but);                  \
  OCL_UNROLL                        \
  for (int i = 0; i < (count); ++i) FENCE_REGISTER((sums)[i])
#if HALVES
// Begins s = q k^T of a step. s is ordered as in attention/scores.cl. q: the first row of the work-group's tile.
ALWAYS_INLINE void begin_scores(float* s, __local const OPERAND_T* q, __local const OPERAND_T* k) {
  // A descriptor advances by 2 (32 bytes) for 16 elements of the depth.
  const ulong a = descriptor(q + warpgroup_number() * 64 * TILE_K, 1), b = descriptor(k, 1);
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
// Rounds the weights s of a step to the operands' type, and writes them to p. Each lane already has the weights that
// wgmma expects from it.
ALWAYS_INLINE void to_operands(uint* p, const float* s) {
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 4; ++i) p[i] = two_halves(s[2 * i], s[2 * i + 1]);
}
// Begins out += p v over the keys `begin` .. end - 1 of a step, multiples of 16. v is read with its columns contiguous. out has
// DEPTH_TILE columns, ordered like those of s.
ALWAYS_INLINE void begin_some_values(float* out, const uint* p, __local const OPERAND_T* v, const int begin,
                                     const int end) {
  const ulong b = descriptor_of(v, TILE_C * TILE_K * 2);  // 16 keys are 16 rows of 128 bytes
  WGMMA_FENCE();
  OCL_UNROLL
  for (int k16 = 0; k16 < TILE_C / 16; ++k16)
    if (k16 * 16 >= begin && k16 * 16 < end)
      OCL_CAT(MULTIPLY_A_REGISTERS_, DEPTH_TILE)(out, p + 4 * k16, b + 128 * k16);
  WGMMA_COMMIT();
}
ALWAYS_INLINE void begin_values(float* out, const uint* p, __local const OPERAND_T* v) {
  begin_some_values(out, p, v, 0, TILE_C);
}
#else
// Number of blocks of 32 elements of the depth that share a running sum. With TERMS 1 (TF32) one sum goes over both
// blocks of a tile, as with 16-bit operands.
#define SUMMED_BLOCKS (TERMS == 3 ? 1 : 2)
// Adds a b over SUMMED_BLOCKS blocks of the depth to row_sum. first: 1 if these are the first blocks, so that row_sum begins
// at 0. high, low: the pieces of a. b_tile: the first of the blocks of b.
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
  for (int block = 0; block < 2; block += SUMMED_BLOCKS) {
    uint high[16 * SUMMED_BLOCKS], low[16 * SUMMED_BLOCKS];
    OCL_UNROLL
    for (int k8 = 0; k8 < 4 * SUMMED_BLOCKS; ++k8) {
      float x[4];
      read_fragment(x, q + (block + k8 / 4) * TILE_M * TILE_K, k8 & 3, 1);
      split_fragment(high, low, k8, x);
    }
    add_blocks(s, high, low, k + block * PIECES * B_ELEMENTS, block == 0);
  }
}
// Adds p v to out, and waits for the sums. `left` columns of p are inside the matrix. v: two blocks of 32 columns of p,
// each [DEPTH_TILE][32]. The columns are permuted as lanes hold p: position i of eight neighbours is column 2i (i < 4)
// or 2(i - 4) + 1.
ALWAYS_INLINE void add_values(float* out, const float* p, __local const OPERAND_T* v, const int left) {
  OCL_UNROLL
  for (int block = 0; block < 2; block += SUMMED_BLOCKS) {
    uint high[16 * SUMMED_BLOCKS], low[16 * SUMMED_BLOCKS];
    OCL_UNROLL
    for (int k8 = 0; k8 < 4 * SUMMED_BLOCKS; ++k8) {
      const float* of = p + block * 16 + 4 * k8;
      const float x[4] = {of[0], of[2], of[1], of[3]};
      split_fragment(high, low, k8, x);
    }
    if (block * TILE_K < left) add_blocks(out, high, low, v + block * PIECES * B_ELEMENTS, 0);
  }
}
#endif
