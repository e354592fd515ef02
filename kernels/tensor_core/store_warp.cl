// kernels/tensor_core/store_warp.cl: a lane's sums of tensor_core/warp.cl as vectors of VW neighbours of a row, by the
// exchanges of tensor_core/store.cl: the unit leaves them as there.
#define LANE_VECTORS (WARP_N / 4 / VW)  // a lane's vectors of a row

// The vectors of the next 16 rows of the warp's tile, whose place is warp_row(), warp_column(): [upper or lower 8
// rows][column], from the sums that are left, which move to the front. The lanes of a warp call it together, before
// anything that only some of them do. UNROLL_STORES: before the loop over such rows.
ALWAYS_INLINE void next_warp_rows(RowVector* rows, float* total) {
  OCL_UNROLL
  for (int i = 0; i < 2 * LANE_VECTORS; ++i) rows[i] = exchanged(total, i / LANE_VECTORS, i % LANE_VECTORS);
  OCL_UNROLL
  for (int i = 0; i < SUMS - WARP_N / 2; ++i) total[i] = total[i + WARP_N / 2];
}
ALWAYS_INLINE int warp_row(void) {
  return (get_local_id(0) >> 5) / WARPS_N * WARP_M + ((get_local_id(0) & 31) >> 2);
}
ALWAYS_INLINE int warp_column(void) {
  return (get_local_id(0) >> 5) % WARPS_N * WARP_N;
}
