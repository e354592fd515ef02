// kernels/tensor_core/store.cl: how products and convolutions store their sums: VW neighbours of a row at once.
//
// A wgmma or mma instruction gives each lane two neighbours of every 8 columns (consume() of tensor_core/warpgroup.cl).
// The four lanes q = 0 .. 3 of a row exchange these sums, so that each lane has vectors of VW neighbours. Then whole
// sectors of memory are loaded and stored, and coordinates are computed once for a vector. A block is 8 columns:
//
//              columns of vector j of a lane
//   VW 8       block 4 j + q                                   operands of 16 bits: 16 bytes per lane
//   VW 4       half q / 2 of block 2 j + q % 2                 operands of 32 bits: 16 bytes per lane
//   VW 2       pair q of block j                               for rows that begin at multiples of 2 elements only
//   ORDERED    part q of 32 columns                            the columns of B lie in such an order that these are the
//                                                              lane's own sums of four blocks (VW 8). Nothing is exchanged
#define ROW_VECTORS (TILE_N / 4 / VW)  // vectors of a row that a lane has
#ifndef ROW_BLOCKS
#define ROW_BLOCKS 1  // blocks of rows whose sums a lane has, one block behind the other
#endif
#ifndef ORDERED
#define ORDERED 0  // 1: column 8 b + 2 q + e of each 32 columns of the product is column 8 q + 2 b + e of the result
#endif
typedef VEC RowVector;
#if VW == 8
#define ROTATED(v) v.s12345670
#elif VW == 4
#define ROTATED(v) v.yzwx
#else
#define ROTATED(v) v.yx
#endif

// Returns the first column of this lane's vector j.
ALWAYS_INLINE int vector_column(const int j) {
  const int q = get_local_id(0) & 3;
  return VW == 8 ? (4 * j + q) * 8 : VW == 4 ? (2 * j + (q & 1)) * 8 + (q >> 1) * 4 : j * 8 + 2 * q;
}

// Returns the column of the result that a lane's columns have, in the order of its sums.
ALWAYS_INLINE int lane_column(const int i) {
  const int q = get_local_id(0) & 3;
  return ORDERED ? i / 8 * 32 + q * 8 + i % 8 : i / 2 * 8 + q * 2 + i % 2;
}

#if VW > 2 && !ORDERED
// Returns four columns of a row: half q / 2 of block q % 2 of two neighbouring blocks. blocks: this lane's sums of both
// blocks.
ALWAYS_INLINE float4 half_block(const float* blocks) {
  const int odd = get_local_id(0) & 1;
  const float give_x = odd ? blocks[0] : blocks[4], give_y = odd ? blocks[1] : blocks[5];
  const float keep_x = odd ? blocks[4] : blocks[0], keep_y = odd ? blocks[5] : blocks[1];
  float got_x, got_y;
  OTHER_LANE(got_x, give_x, 1);
  OTHER_LANE(got_y, give_y, 1);
  return (float4)(odd ? got_x : keep_x, odd ? got_y : keep_y, odd ? keep_x : got_x, odd ? keep_y : got_y);
}
#endif

// Returns vector j of the lane's row r (lower 0) or r + 8 (lower 1), from the sums of its blocks in `total`.
ALWAYS_INLINE RowVector exchanged(const float* total, const int lower, const int j) {
#if VW == 8
#if ORDERED
  total += 16 * j + 2 * lower;
  return (float8)(total[0], total[1], total[4], total[5], total[8], total[9], total[12], total[13]);
#else
  const float4 even = half_block(total + 16 * j + 2 * lower), odd = half_block(total + 16 * j + 8 + 2 * lower);
  const int upper = get_local_id(0) & 2;
  const float4 give = upper ? even : odd, keep = upper ? odd : even;
  float4 got;
  OTHER_LANE(got.x, give.x, 2);
  OTHER_LANE(got.y, give.y, 2);
  OTHER_LANE(got.z, give.z, 2);
  OTHER_LANE(got.w, give.w, 2);
  return upper ? (float8)(got, keep) : (float8)(keep, got);
#endif
#elif VW == 4
  return half_block(total + 8 * j + 2 * lower);
#else
  return (float2)(total[4 * j + 2 * lower], total[4 * j + 2 * lower + 1]);
#endif
}

// A step stores up to 32 sums of the lane's two rows. If the epilogue is long (LONG_STORES), the loop over steps is not
// unrolled, because the unrolled code would not fit in the instruction cache. Otherwise it is unrolled. Then moving the
// sums to the front (next_rows) needs no instructions. A consumer that takes turns has up to 192 sums: it moves them in
// every second step only.
#if ROW_VECTORS * VW <= 16
#define STORE_VECTORS ROW_VECTORS
#elif ROW_VECTORS % (16 / VW) == 0
#define STORE_VECTORS (16 / VW)
#else
#define STORE_VECTORS 1
#endif
#define STORE_STEPS (ROW_VECTORS / STORE_VECTORS)
#if LONG_STORES && TURNS
#define UNROLL_STORES __attribute__((opencl_unroll_hint(2)))
#elif LONG_STORES
#define UNROLL_STORES OCL_NO_UNROLL
#else
#define UNROLL_STORES OCL_UNROLL
#endif

// Writes the lane's next STORE_VECTORS vectors of both rows to rows[2 j + lower], from the first sums of `total`. The
// remaining sums move to the front. All lanes of a warp must call it together.
ALWAYS_INLINE void next_rows(RowVector* rows, float* total) {
  OCL_UNROLL
  for (int j = 0; j < STORE_VECTORS; ++j) {
    rows[2 * j] = exchanged(total, 0, j);
    rows[2 * j + 1] = exchanged(total, 1, j);
  }
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * TILE_N / 2 - 2 * VW * STORE_VECTORS; ++i)
    total[i] = total[i + 2 * VW * STORE_VECTORS];
}

// LOCAL_ROWS makes local memory for STORE_PRODUCT, which stores a tile of a product M x N by the epilogue macros STOREA,
// STOREV and STORE of (b, m, n). rows: as LOCAL_ROWS makes it.
#if VW == 2
// The rows begin at any element. Lanes exchange 32 columns of 16 rows through local memory, so that a warp stores 32
// neighbours of a row at once.
#define ROW_PITCH 40
#define LOCAL_ROWS(name)                                                                    \
  __local float name##_of_all[CONSUMERS * 4 * 16 * ROW_PITCH] __attribute__((aligned(16))); \
  __local float* name = name##_of_all + (get_local_id(0) >> 5) * (16 * ROW_PITCH)
ALWAYS_INLINE void put_rows(__local float* rows, float* total) {
  const int lane = get_local_id(0) & 31;
  OCL_UNROLL
  for (int i = 0; i < 8; ++i)
    *(__local float2*)(rows + (lane / 4 + (i & 1) * 8) * ROW_PITCH + (i >> 1) * 8 + 2 * (lane & 3)) =
        (float2)(total[2 * i], total[2 * i + 1]);
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * TILE_N / 2 - 16; ++i) total[i] = total[i + 16];
}
#define STORE_PRODUCT(total, rows, tile, batch, M, N)                                 \
  {                                                                                   \
    const int lane = get_local_id(0) & 31;                                            \
    UNROLL_STORES                                                                     \
    for (int first = 0; first < ROW_BLOCKS * TILE_N; first += 32) {                   \
      const int m0 = tile.x * TILE_M + first / TILE_N * 64 + tile_warp() * 16,        \
                n = tile.y * TILE_N + first % TILE_N + lane;                          \
      put_rows(rows, total);                                                          \
      warp_sync();                                                                    \
      UNROLL_STORES                                                                   \
      for (int i = 0; i < 16; ++i)                                                    \
        if (n < N && m0 + i < M) STORE(rows[i * ROW_PITCH + lane], batch, m0 + i, n); \
      warp_sync();                                                                    \
    }                                                                                 \
  }
#else
#define LOCAL_ROWS(name)
#define STORE_PRODUCT(total, rows, tile, batch, M, N)                                                    \
  {                                                                                                      \
    const int row0 = tile.x * TILE_M + tile_warp() * 16 + ((get_local_id(0) & 31) >> 2);                 \
    const int whole = STORES_ALIGNED && (tile.x + 1) * TILE_M <= M && (tile.y + 1) * TILE_N <= N;        \
    UNROLL_STORES                                                                                        \
    for (int step = 0; step < ROW_BLOCKS * STORE_STEPS; ++step) {                                        \
      const int m0 = row0 + step / STORE_STEPS * 64, vector0 = step % STORE_STEPS * STORE_VECTORS;       \
      RowVector sums[2 * STORE_VECTORS];                                                                 \
      next_rows(sums, total);                                                                            \
      if (whole) {                                                                                       \
        OCL_UNROLL                                                                                       \
        for (int j = 0; j < 2 * STORE_VECTORS; ++j)                                                      \
          STOREA(sums[j], batch, m0 + (j & 1) * 8, tile.y * TILE_N + vector_column(vector0 + (j >> 1))); \
        continue;                                                                                        \
      }                                                                                                  \
      OCL_UNROLL                                                                                         \
      for (int j = 0; j < 2 * STORE_VECTORS; ++j) {                                                      \
        RowVector v = sums[j];                                                                           \
        const int row = m0 + (j & 1) * 8, n = tile.y * TILE_N + vector_column(vector0 + (j >> 1));       \
        if (row >= M) continue;                                                                          \
        if (n + VW <= N) {                                                                               \
          STOREV(v, batch, row, n);                                                                      \
        } else {                                                                                         \
          OCL_NO_UNROLL                                                                                  \
          for (int i = n; i < N; ++i, v = ROTATED(v)) STORE(v.s0, batch, row, i);                        \
        }                                                                                                \
      }                                                                                                  \
    }                                                                                                    \
  }
#endif
