// kernels/attention/shared_warp.cl: what attention and its gradients on warp tensor cores share: staging of rows,
// products of tiles. Comes after tensor_core/warp.cl and attention/scores.cl.
//
// A tile in local memory is [blocks of 128 bytes of the depth][rows][TILE_K], like an operand with contiguous depth in
// tensor_core/warp.cl. Scores are products of rows of two tiles. They become weights, which are then multiplied by the
// rows of another tile:
//   operands of 16 bits: each lane already has the weights that mma expects from it. Rows are transposed while they are
//   read.
//   operands of 32 bits: mma expects a weight from another lane than the one that has computed it. So the columns of
//   the scores are permuted: position i of eight neighbours holds column 2i (i < 4) or 2(i - 4) + 1. Rows are read
//   element by element.
//
//   TILE_C      columns of a step, equal to TILE_N and WARP_N: 64 or 128
//   DEPTH_TILE  width of the accumulators of a row: the larger head size, rounded up to a multiple of 32
#define ROW_BLOCKS (WARP_M / 16)  // blocks of 16 rows that a warp has
#define DEPTH_BLOCKS ((DEPTH_TILE + TILE_K - 1) / TILE_K)  // blocks of 128 bytes that a row has in local memory
#define TILE_ELEMENTS (TILE_C * DEPTH_BLOCKS * TILE_K)

// Returns the offset of a row's chunk in a tile of `rows` rows, in elements.
ALWAYS_INLINE int tile_chunk(const int row, const int chunk, const int rows) {
  return (chunk >> 3) * rows * TILE_K + row_chunk(row, chunk & 7);
}

// Copies `rows` rows of an operand, `stride` elements apart, to a tile. `left` of the rows, and `depth` elements of
// each, are inside the matrix; zeros are written for the others. direct: as for stage_chunk.
ALWAYS_INLINE void stage_rows(__local OPERAND_T* to, __global const OPERAND_T* from, const long stride, const int left,
                              const int depth, const int rows, const int direct) {
  int p = get_local_id(0);
  RECOMPUTE_FROM(p);
  const int chunk = p & 7;
  OCL_UNROLL
  for (int block = 0; block < DEPTH_BLOCKS; ++block) {
    const int d = block * TILE_K + chunk * CHUNK;
    if (direct) {
      OCL_UNROLL
      for (int i = 0; i < rows * 8 / GROUP_SIZE; ++i) {
        const int row = (p >> 3) + i * (GROUP_SIZE / 8), valid = row < left ? depth - d : 0;
        stage_chunk(to + tile_chunk(row, block * 8 + chunk, rows), valid > 0 ? from + row * stride + d : from, 1, valid,
                    1);
      }
    } else {
      OCL_NO_UNROLL
      for (int row = p >> 3; row < rows; row += GROUP_SIZE / 8)
        stage_chunk(to + tile_chunk(row, block * 8 + chunk, rows), from + row * stride + d, 1,
                    row < left ? depth - d : 0, 0);
    }
  }
}

// Writes s = q k^T, summed over `depth` elements of each row. s is [block of 16 rows][TILE_C / 2], ordered as in
// attention/scores.cl. q: the warp's first row in the tile of the work-group.
ALWAYS_INLINE void multiply_scores(float* s, __local const OPERAND_T* q, __local const OPERAND_T* k, const int depth) {
  int lane = get_local_id(0) & 31;
  RECOMPUTE_FROM(lane);
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * TILE_C / 2; ++i) s[i] = 0.0f;
  UNROLL_DEPTH
  for (int at = 0; at < (depth + 2 * CHUNK - 1) / (2 * CHUNK); ++at) {
    uint a_high[4 * ROW_BLOCKS], a_low[4 * ROW_BLOCKS];
    OCL_UNROLL
    for (int i = 0; i < ROW_BLOCKS; ++i) {
      read_rows(a_high + 4 * i, local_address(q + tile_chunk(16 * i + (lane & 15), 2 * at + (lane >> 4), TILE_M)));
      round_to_tf32(a_high + 4 * i, a_low + 4 * i);
    }
    OCL_UNROLL
    for (int j = 0; j < TILE_C / 32; ++j) {
      uint b_high[8], b_low[8];
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        read_rows(b_high + 4 * i, local_address(k + tile_chunk(32 * j + 16 * i + (lane & 7) + (lane >> 4) * 8,
                                                               2 * at + ((lane >> 3) & 1), TILE_C)));
        round_to_tf32(b_high + 4 * i, b_low + 4 * i);
      }
      OCL_UNROLL
      for (int i = 0; i < ROW_BLOCKS; ++i)
        add_products(s + i * (TILE_C / 2) + 16 * j, a_high + 4 * i, a_low + 4 * i, b_high, b_low, 32);
    }
  }
}

// Writes to x the first operand (A) of mma: the softmax weights p of 16 rows for block number `at` of the keys. A block
// has 16 keys with 16-bit operands, 8 keys with 32-bit ones.
ALWAYS_INLINE void to_operands(uint* x, const float* p, const int at) {
#if HALVES
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = two_halves(p[8 * at + 2 * i], p[8 * at + 2 * i + 1]);
#else
  x[0] = as_uint(p[4 * at]);
  x[1] = as_uint(p[4 * at + 2]);
  x[2] = as_uint(p[4 * at + 1]);
  x[3] = as_uint(p[4 * at + 3]);
#endif
}
// Writes to x the second operand (B) of mma: 16 columns of v, from `column` on, for block number `at` of the keys.
ALWAYS_INLINE void read_values(uint* x, __local const OPERAND_T* v, const int lane, const int column, const int at) {
#if HALVES
  read_columns(x, local_address(v + tile_chunk(at * 16 + (lane & 15), column / CHUNK + (lane >> 4), TILE_C)));
#else
  const int key = at * 8 + (lane & 3) * 2, d = column + (lane >> 2);
  OCL_UNROLL
  for (int i = 0; i < 4; ++i)
    x[i] = as_uint((float)v[tile_chunk(key + (i & 1), d / CHUNK + (i >> 1) * 2, TILE_C) + d % CHUNK]);
#endif
}
// Adds p v to out, for the first `width` columns of v. out is [block of 16 rows][DEPTH_TILE / 2].
ALWAYS_INLINE void add_values(float* out, const float* p, __local const OPERAND_T* v, const int width) {
  int lane = get_local_id(0) & 31;
  RECOMPUTE_FROM(lane);
  OCL_UNROLL
  for (int at = 0; at < TILE_C / (2 * CHUNK); ++at) {
    uint a_high[4 * ROW_BLOCKS], a_low[4 * ROW_BLOCKS];
    OCL_UNROLL
    for (int i = 0; i < ROW_BLOCKS; ++i) {
      to_operands(a_high + 4 * i, p + i * (TILE_C / 2), at);
      round_to_tf32(a_high + 4 * i, a_low + 4 * i);
    }
    OCL_UNROLL
    for (int j = 0; j < (width + 31) / 32; ++j) {
      uint b_high[8], b_low[8];
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        read_values(b_high + 4 * i, v, lane, 32 * j + 16 * i, at);
        round_to_tf32(b_high + 4 * i, b_low + 4 * i);
      }
      OCL_UNROLL
      for (int i = 0; i < ROW_BLOCKS; ++i)
        add_products(out + i * (DEPTH_TILE / 2) + 16 * j, a_high + 4 * i, a_low + 4 * i, b_high, b_low, 32);
    }
  }
}
