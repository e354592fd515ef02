// kernels/mma_store.cl: a lane's sums of mma.cl as vectors of VW neighbours of a row, by the exchanges of wgmma_store.cl: the unit leaves them as there.
#define LANE_VECTORS (WARP_N / 4 / VW)  // a lane's vectors of a row

// All sums of a lane as vectors: vector i is of row row_of(i), from column column_of(i) on, of the warp's tile, whose place is warp_row(), warp_column().
// The lanes of a warp call it together, before anything that only some of them do.
ALWAYS_INLINE void gather_warp_rows(RowVector* rows, const float* total) {
  OCL_UNROLL
  for (int i = 0; i < SUMS / VW; ++i) rows[i] = exchanged(total + i / LANE_VECTORS / 2 * (WARP_N / 2), i / LANE_VECTORS % 2, i % LANE_VECTORS);
}
ALWAYS_INLINE int warp_row(void) { return (get_local_id(0) >> 5) / WARPS_N * WARP_M + ((get_local_id(0) & 31) >> 2); }
ALWAYS_INLINE int warp_column(void) { return (get_local_id(0) >> 5) % WARPS_N * WARP_N; }
ALWAYS_INLINE int row_of(const int i) { return i / LANE_VECTORS * 8; }
ALWAYS_INLINE int column_of(const int i) { return vector_column(i % LANE_VECTORS); }
