// kernels/conv/statistics.cl: statistics of the columns that a convolution on tensor cores stores: mean and m2 (the sum
// of squared distances from the mean), in slices. With them, a batch norm need not read the output again. Comes after
// tensor_core/warpgroup.cl or tensor_core/warp.cl, with STATISTICS 1.
//
// Each column of tiles is cut into `slices` slices; one work-group takes a slice:
//   slice 0: tiles 0, slices, 2 slices, ...      slice 1: tiles 1, slices + 1, ...      ...
// From a sum to the result:
//   1. A lane merges rows r and r + 8 of its columns.
//   2. The eight lanes of the same columns exchange them. Each keeps an eighth of the columns, over 16 rows.
//   3. These 16 rows join the rows of the slice that the warp has seen before, in local memory.
//   4. After the last tile of the slice, the warps of a column are merged in order, and stored by
//      STORE1(value, which, slice, k). which: 0 mean, 1 m2, 2 count.
// Merging is by Chan, Golub and LeVeque 1979, in a fixed order. Only rows inside the matrix count. The values are those
// that the kernel stores: with the bias of their column (BIAS 1), rounded to the operands' type.
//
// OWN_ROWS, OWN_COLUMNS: rows and columns of a warp. COLUMN_WARPS: warps of the same columns. SLOTS: slices whose
// statistics local memory holds at once.
#ifdef WARPS_N  // tensor_core/warp.cl: all warps stage, multiply and store
#define OWN_ROWS WARP_M
#define OWN_COLUMNS WARP_N
#define COLUMN_WARPS (TILE_M / WARP_M)
#define SLOTS 1
#define STORING_ITEMS GROUP_SIZE
#define FIRST_ROW ((int)(get_local_id(0) >> 5) / WARPS_N * WARP_M)  // first row of this warp in a tile
#define FIRST_COLUMN warp_column()
#define WAIT_FOR_WARPS(s, number) barrier(CLK_LOCAL_MEM_FENCE)
// tensor_core/warpgroup.cl: the producers run ahead, so a warp may begin a slice while others still store the previous
// slice
#else
#define OWN_ROWS 16
#define OWN_COLUMNS TILE_N
#define COLUMN_WARPS (CONSUMERS * 4)
#define SLOTS 2
#define STORING_ITEMS (CONSUMERS * 128)
#define FIRST_ROW ((int)(get_local_id(0) >> 5) * 16)
#define FIRST_COLUMN 0
#define WAIT_FOR_WARPS(s, number) \
  barrier_arrive(s.done);         \
  barrier_wait(s.done, (number) & 1)
#endif
#define LANE_COLUMNS (OWN_COLUMNS / 32)  // columns of the warp that a lane keeps after the exchange

typedef struct {
  __local float2* kept;  // mean and m2, [SLOTS][COLUMN_WARPS][TILE_N]
  __local float* counts;  // [SLOTS][COLUMN_WARPS]
  uint done;  // tensor_core/warpgroup.cl: local address of an mbarrier, complete once all warps have finished a slice
} ColumnStatistics;

#ifdef WARPS_N
#define LOCAL_STATISTICS(name)                               \
  __local float2 name##_kept[SLOTS * COLUMN_WARPS * TILE_N]; \
  __local float name##_counts[SLOTS * COLUMN_WARPS];         \
  const ColumnStatistics name = {name##_kept, name##_counts, 0}
#else
// Must come before PIPELINE, whose work-group barrier lets all work-items see the initialised mbarrier.
#define LOCAL_STATISTICS(name)                                                            \
  __local float2 name##_kept[SLOTS * COLUMN_WARPS * TILE_N];                              \
  __local float name##_counts[SLOTS * COLUMN_WARPS];                                      \
  __local ulong name##_done[1];                                                           \
  const ColumnStatistics name = {name##_kept, name##_counts, local_address(name##_done)}; \
  if (get_local_id(0) == 0) barrier_init(name.done, STORING_ITEMS)
#endif

// Loops over the tiles of a work-group: over its slices one after another, and in each slice over its tiles. A slice
// may have one tile less than others. slice_tile returns row and column of tile number g of this loop.
#define FOR_SLICE_TILES(g, m_tiles, n_tiles, slices)                                               \
  for (int g = 0; g < ((slices) * (n_tiles) - (int)get_group_id(0) + (int)get_num_groups(0) - 1) / \
                          (int)get_num_groups(0) * (((m_tiles) + (slices) - 1) / (slices));        \
       ++g)                                                                                        \
    if (slice_tile(g, m_tiles, n_tiles, slices).x < (m_tiles))
ALWAYS_INLINE int2 slice_tile(const int g, const int m_tiles, const int n_tiles, const int slices) {
  const int longest = (m_tiles + slices - 1) / slices, task = get_group_id(0) + g / longest * get_num_groups(0);
  return (int2)(task / n_tiles + g % longest * slices, task % n_tiles);
}

#if BIAS
#if HALVES
#define LOAD_BIAS(p) two_floats(*(p)).x
#else
#define LOAD_BIAS(p) (*(p))
#endif
// Adds to each sum the bias of its column. bias: address of the bias of the tile's first column. inside: number of
// columns of the matrix from there on.
ALWAYS_INLINE void add_bias(float* total, __global const OPERAND_T* bias, const int inside) {
  OCL_UNROLL
  for (int at = 0; at < OWN_COLUMNS / 8; ++at) {
    const int column = FIRST_COLUMN + lane_column(2 * at);
    const float left = column < inside ? LOAD_BIAS(bias + column) : 0.0f,
                right = column + 1 < inside ? LOAD_BIAS(bias + column + 1) : 0.0f;
    OCL_UNROLL
    for (int row = 0; row < OWN_ROWS / 8; ++row) {
      total[row / 2 * (OWN_COLUMNS / 2) + at * 4 + row % 2 * 2] += left;
      total[row / 2 * (OWN_COLUMNS / 2) + at * 4 + row % 2 * 2 + 1] += right;
    }
  }
}
#endif

// Returns the weight of `other` rows when they are merged into `own` rows; 0 if both numbers are 0.
ALWAYS_INLINE float merge_weight(const float own, const float other) {
  return other > 0.0f ? other / (own + other) : 0.0f;
}
// Returns (mean, m2) of the rows of `own` and `other` together. own_weight: number of own rows * merge_weight.
ALWAYS_INLINE float2 merged(const float2 own, const float2 other, const float merge_weight, const float own_weight) {
  const float d = other.x - own.x;
  return (float2)(fma(d, merge_weight, own.x), fma(d * d, own_weight, own.y + other.y));
}

// Merges 16 rows of sums into the statistics of the slice in `slot`. `rows` of them are inside the matrix. before:
// number of rows of the slice that this warp has merged earlier. All lanes of a warp must call it together.
ALWAYS_INLINE void add_rows(const ColumnStatistics s, const int slot, const float* total, const int before,
                            const int rows) {
  const int lane = get_local_id(0) & 31, row = lane >> 2, place = slot * COLUMN_WARPS + FIRST_ROW / OWN_ROWS;
  __local float2* kept = s.kept + place * TILE_N + FIRST_COLUMN;
  // weights[0] is the weight of row r + 8, weights[1] .. [3] those of the rows of the lanes whose numbers differ in bit
  // 16, 8, 4. They are the same for all columns.
  float weights[4], own_weights[4], count = row < rows ? 1.0f : 0.0f, other = row + 8 < rows ? 1.0f : 0.0f;
#define MERGE_WEIGHT(level)                    \
  weights[level] = merge_weight(count, other); \
  own_weights[level] = count * weights[level]; \
  count += other
  MERGE_WEIGHT(0);
  OTHER_LANE(other, count, 16);
  MERGE_WEIGHT(1);
  OTHER_LANE(other, count, 8);
  MERGE_WEIGHT(2);
  OTHER_LANE(other, count, 4);
  MERGE_WEIGHT(3);
  const float slice_weight = merge_weight(before, count), own_slice_weight = before * slice_weight;
  if (lane == 0 && FIRST_COLUMN == 0) s.counts[place] = before + count;
// Two lanes exchange halves of 2 * n columns; the lane's bit says which half it keeps.
#define EXCHANGE_HALF(level, bit, n)                                                           \
  OCL_UNROLL                                                                                   \
  for (int j = 0; j < n; ++j) {                                                                \
    const float2 give = lane & bit ? of[j] : of[j + n], keep = lane & bit ? of[j + n] : of[j]; \
    float2 got;                                                                                \
    OTHER_LANE(got.x, give.x, bit);                                                            \
    OTHER_LANE(got.y, give.y, bit);                                                            \
    of[j] = merged(keep, got, weights[level], own_weights[level]);                             \
  }
  OCL_UNROLL
  for (int i = 0; i < LANE_COLUMNS; ++i) {
    float2 of[8];  // (mean, m2) of columns i + j * LANE_COLUMNS; this lane has OWN_COLUMNS / 4 columns
    OCL_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int column = i + j * LANE_COLUMNS, at = column / 2 * 4 + column % 2;
#if HALVES
      const float2 rows_of = two_floats(two_halves(total[at], total[at + 2]));
#else
      const float2 rows_of = (float2)(total[at], total[at + 2]);
#endif
      of[j] = merged((float2)(rows_of.x, 0.0f), (float2)(rows_of.y, 0.0f), weights[0], own_weights[0]);
    }
    EXCHANGE_HALF(1, 16, 4)
    EXCHANGE_HALF(2, 8, 2)
    EXCHANGE_HALF(3, 4, 1)
    const int at = lane_column(i + row * LANE_COLUMNS);
    kept[at] = before ? merged(kept[at], of[0], slice_weight, own_slice_weight) : of[0];
  }
}

// Merges a tile into the statistics of the slice in `slot`. `left` rows of the tile are inside the matrix. rows_seen:
// number of rows of the slice that this warp has merged earlier. Returns the new number.
ALWAYS_INLINE int add_tile(const ColumnStatistics s, const int slot, const float* total, int rows_seen,
                           const int left) {
  OCL_UNROLL
  for (int block = 0; block < OWN_ROWS / 16; ++block) {
    const int inside = clamp(left - FIRST_ROW - block * 16, 0, 16);
    add_rows(s, slot, total + block * (OWN_COLUMNS / 2), rows_seen, inside);
    rows_seen += inside;
  }
  return rows_seen;
}

// Returns (mean, m2, count) of column `column` of the slice in `slot`, after all warps have finished the slice.
ALWAYS_INLINE float3 merged_statistics(const ColumnStatistics s, const int slot, const int column) {
  float2 all = (float2)(0.0f);
  float count = 0.0f;
  for (int warp = 0; warp < COLUMN_WARPS; ++warp) {
    const float more = s.counts[slot * COLUMN_WARPS + warp], of_all = merge_weight(count, more);
    if (more > 0.0f) all = merged(all, s.kept[(slot * COLUMN_WARPS + warp) * TILE_N + column], of_all, count * of_all);
    count += more;
  }
  return (float3)(all.x, all.y, count);
}

// Stores the statistics of a finished slice: of columns first .. first + TILE_N - 1, as far as they are below K.
// number: how many slices this work-group had before. k0: the first channel of the channel group.
#define STORE_STATISTICS(s, number, slice, first, K, k0)                           \
  {                                                                                \
    WAIT_FOR_WARPS(s, number);                                                     \
    for (int column = get_local_id(0); column < TILE_N; column += STORING_ITEMS) { \
      if (first + column >= K) break;                                              \
      const float3 of = merged_statistics(s, (number) % SLOTS, column);            \
      STORE1(of.x, 0, slice, k0 + first + column);                                 \
      STORE1(of.y, 1, slice, k0 + first + column);                                 \
      STORE1(of.z, 2, slice, k0 + first + column);                                 \
    }                                                                              \
  }
