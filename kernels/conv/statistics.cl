// kernels/conv/statistics.cl: mean and m2 (sum of squared distances from the mean) of the columns that a convolution on
// matrix units stores, in parts: the
// pass over memory that a batch norm would begin with. Comes after tensor_core/warpgroup.cl or tensor_core/warp.cl,
// with STATISTICS 1.
//
// The tiles of a column of tiles are dealt out to `parts` parts, each the work of one group:
//
//   part 0: tiles 0, parts, 2 parts, ...   |  lane: rows r and r + 8 of its columns  ->  exchanges with the 7 other
//                                          lanes of these columns, each keeping
//   part 1: tiles 1, parts + 1, ...        |  half of them  ->  16 rows join those that the warp has seen before, in
//                                          local memory
//   ...                                    |  ->  after the part's last tile the warps of a column, in order  ->
//                                          STORE1(value, which, part, k)
//
// which: 0 mean, 1 m2, 2 count. Every merge is by Chan, Golub and LeVeque 1979, with counts of the rows inside, in a
// fixed order. The values are those that the stores leave: with the bias of their column (BIAS 1), rounded to the
// operands' type.
//
//                    rows and columns of a warp      warps of the same columns      parts that have a place
#ifdef WARPS_N  // tensor_core/warp.cl: all warps stage, multiply and store
#define OWN_ROWS WARP_M
#define OWN_COLUMNS WARP_N
#define COLUMN_WARPS (TILE_M / WARP_M)
#define SLOTS 1
#define STORING_ITEMS GROUP
#define FIRST_ROW ((int)(get_local_id(0) >> 5) / WARPS_N * WARP_M)  // of this warp in a tile
#define FIRST_COLUMN warp_column()
#define ALL_HAVE_ENDED(s, number) barrier(CLK_LOCAL_MEM_FENCE)
// tensor_core/warpgroup.cl: producers are tiles ahead, so warps may begin a part while others store the one before
#else
#define OWN_ROWS 16
#define OWN_COLUMNS TILE_N
#define COLUMN_WARPS (CONSUMERS * 4)
#define SLOTS 2
#define STORING_ITEMS (CONSUMERS * 128)
#define FIRST_ROW ((int)(get_local_id(0) >> 5) * 16)
#define FIRST_COLUMN 0
#define ALL_HAVE_ENDED(s, number) \
  barrier_arrive(s.done);         \
  barrier_wait(s.done, (number) & 1)
#endif
#define LANE_COLUMNS (OWN_COLUMNS / 32)  // columns of a warp's that a lane keeps

typedef struct {
  __local float2* kept;  // mean and m2, [SLOTS][COLUMN_WARPS][TILE_N]
  __local float* counts;  // [SLOTS][COLUMN_WARPS]
  uint done;  // tensor_core/warpgroup.cl: local address of an mbarrier: the warps of a part have ended
} Statistics;

#ifdef WARPS_N
#define STATISTICS_OF_COLUMNS(name)                          \
  __local float2 name##_kept[SLOTS * COLUMN_WARPS * TILE_N]; \
  __local float name##_counts[SLOTS * COLUMN_WARPS];         \
  const Statistics name = {name##_kept, name##_counts, 0}
#else
// Before PIPELINE, which lets all work-items see the barrier.
#define STATISTICS_OF_COLUMNS(name)                                                 \
  __local float2 name##_kept[SLOTS * COLUMN_WARPS * TILE_N];                        \
  __local float name##_counts[SLOTS * COLUMN_WARPS];                                \
  __local ulong name##_done[1];                                                     \
  const Statistics name = {name##_kept, name##_counts, local_address(name##_done)}; \
  if (get_local_id(0) == 0) barrier_init(name.done, STORING_ITEMS)
#endif

// The tiles of a group: its parts of columns of tiles, one after another, and in each the tiles of the part. A part may
// have one tile less than others.
#define FOR_TILES_OF_PARTS(g, m_tiles, n_tiles, parts)                                            \
  for (int g = 0; g < ((parts) * (n_tiles) - (int)get_group_id(0) + (int)get_num_groups(0) - 1) / \
                          (int)get_num_groups(0) * (((m_tiles) + (parts) - 1) / (parts));         \
       ++g)                                                                                       \
    if (tile_of_part(g, m_tiles, n_tiles, parts).x < (m_tiles))
ALWAYS_INLINE int2 tile_of_part(const int g, const int m_tiles, const int n_tiles, const int parts) {
  const int longest = (m_tiles + parts - 1) / parts, task = get_group_id(0) + g / longest * get_num_groups(0);
  return (int2)(task / n_tiles + g % longest * parts, task % n_tiles);
}

#if BIAS
#if HALVES
#define BIAS_OF(p) unit_values(*(p)).x
#else
#define BIAS_OF(p) (*(p))
#endif
// Adds its column's bias to each sum: `bias` is that of the tile's first column, `inside` columns from there on exist.
ALWAYS_INLINE void add_bias(float* total, __global const UNIT_T* bias, const int inside) {
  OCL_UNROLL
  for (int at = 0; at < OWN_COLUMNS / 8; ++at) {
    const int column = FIRST_COLUMN + at * 8 + (get_local_id(0) & 3) * 2;
    const float left = column < inside ? BIAS_OF(bias + column) : 0.0f,
                right = column + 1 < inside ? BIAS_OF(bias + column + 1) : 0.0f;
    OCL_UNROLL
    for (int row = 0; row < OWN_ROWS / 8; ++row) {
      total[row / 2 * (OWN_COLUMNS / 2) + at * 4 + row % 2 * 2] += left;
      total[row / 2 * (OWN_COLUMNS / 2) + at * 4 + row % 2 * 2 + 1] += right;
    }
  }
}
#endif

// How much the mean moves towards what is merged, of `other` rows into `own`; 0 where there is nothing.
ALWAYS_INLINE float share(const float own, const float other) {
  return other > 0.0f ? other / (own + other) : 0.0f;
}
// (mean, m2) of own rows with those of others, whose share is given; own_share: own * share.
ALWAYS_INLINE float2 merged(const float2 own, const float2 other, const float share, const float own_share) {
  const float d = other.x - own.x;
  return (float2)(fma(d, share, own.x), fma(d * d, own_share, own.y + other.y));
}

// Adds the sums of 16 rows, `rows` of them inside, to the `before` rows of the part that this warp has seen. The lanes
// of a warp call it together.
ALWAYS_INLINE void add_rows(const Statistics s, const int slot, const float* total, const int before, const int rows) {
  const int lane = get_local_id(0) & 31, row = lane >> 2, place = slot * COLUMN_WARPS + FIRST_ROW / OWN_ROWS;
  __local float2* kept = s.kept + place * TILE_N + FIRST_COLUMN;
  // Shares of the lower row, and of what the lane at bit 16, 8, 4 has; the same for all columns.
  float shares[4], own_shares[4], count = row < rows ? 1.0f : 0.0f, other = row + 8 < rows ? 1.0f : 0.0f;
#define SHARE_OF_OTHER(level)                \
  shares[level] = share(count, other);       \
  own_shares[level] = count * shares[level]; \
  count += other
  SHARE_OF_OTHER(0);
  OTHER_LANE(other, count, 16);
  SHARE_OF_OTHER(1);
  OTHER_LANE(other, count, 8);
  SHARE_OF_OTHER(2);
  OTHER_LANE(other, count, 4);
  SHARE_OF_OTHER(3);
  const float part_share = share(before, count), own_part_share = before * part_share;
  if (lane == 0 && FIRST_COLUMN == 0) s.counts[place] = before + count;
// Half of 2 * n columns: this lane's or the other's, by the bit of the lane.
#define EXCHANGE_HALF(level, bit, n)                                                           \
  OCL_UNROLL                                                                                   \
  for (int j = 0; j < n; ++j) {                                                                \
    const float2 give = lane & bit ? of[j] : of[j + n], keep = lane & bit ? of[j + n] : of[j]; \
    float2 got;                                                                                \
    OTHER_LANE(got.x, give.x, bit);                                                            \
    OTHER_LANE(got.y, give.y, bit);                                                            \
    of[j] = merged(keep, got, shares[level], own_shares[level]);                               \
  }
  OCL_UNROLL
  for (int i = 0; i < LANE_COLUMNS; ++i) {
    float2 of[8];  // columns i + j * LANE_COLUMNS of this lane's OWN_COLUMNS / 4
    OCL_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int column = i + j * LANE_COLUMNS, at = column / 2 * 4 + column % 2;
#if HALVES
      const float2 rows_of = unit_values(two_halves(total[at], total[at + 2]));
#else
      const float2 rows_of = (float2)(total[at], total[at + 2]);
#endif
      of[j] = merged((float2)(rows_of.x, 0.0f), (float2)(rows_of.y, 0.0f), shares[0], own_shares[0]);
    }
    EXCHANGE_HALF(1, 16, 4)
    EXCHANGE_HALF(2, 8, 2)
    EXCHANGE_HALF(3, 4, 1)
    const int column = i + row * LANE_COLUMNS, at = column / 2 * 8 + (lane & 3) * 2 + column % 2;
    kept[at] = before ? merged(kept[at], of[0], part_share, own_part_share) : of[0];
  }
}

// Adds a tile's sums, of whose rows `left` are inside, to the `counted` rows that this warp has seen of the part in the
// slot; how many it then has.
ALWAYS_INLINE int add_tile(const Statistics s, const int slot, const float* total, int counted, const int left) {
  OCL_UNROLL
  for (int block = 0; block < OWN_ROWS / 16; ++block) {
    const int inside = clamp(left - FIRST_ROW - block * 16, 0, 16);
    add_rows(s, slot, total + block * (OWN_COLUMNS / 2), counted, inside);
    counted += inside;
  }
  return counted;
}

// The statistics of column `column` of the part in the slot, once all warps have ended it.
ALWAYS_INLINE float3 statistics_of(const Statistics s, const int slot, const int column) {
  float2 all = (float2)(0.0f);
  float count = 0.0f;
  for (int warp = 0; warp < COLUMN_WARPS; ++warp) {
    const float more = s.counts[slot * COLUMN_WARPS + warp], of_all = share(count, more);
    if (more > 0.0f) all = merged(all, s.kept[(slot * COLUMN_WARPS + warp) * TILE_N + column], of_all, count * of_all);
    count += more;
  }
  return (float3)(all.x, all.y, count);
}

// At the end of a part, whose number in this group is `number`: columns first .. first + TILE_N - 1 below K, as numbers
// over all groups of channels from k0 on.
#define STORE_STATISTICS(s, number, part, first, K, k0)                            \
  {                                                                                \
    ALL_HAVE_ENDED(s, number);                                                     \
    for (int column = get_local_id(0); column < TILE_N; column += STORING_ITEMS) { \
      if (first + column >= K) break;                                              \
      const float3 of = statistics_of(s, (number) % SLOTS, column);                \
      STORE1(of.x, 0, part, k0 + first + column);                                  \
      STORE1(of.y, 1, part, k0 + first + column);                                  \
      STORE1(of.z, 2, part, k0 + first + column);                                  \
    }                                                                              \
  }
