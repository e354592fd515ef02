// kernels/tensor_core/store_warp.cl: turns the sums of tensor_core/warp.cl into vectors of VW neighbours of a row. The
// lanes exchange sums as in tensor_core/store.cl, because mma and wgmma leave sums in the same lanes.
#define LANE_VECTORS (WARP_N / 4 / VW)  // vectors of a row that a lane has

// Writes the lane's vectors of the next 16 rows of the warp's tile to rows[upper or lower 8 rows][column], from the
// first sums of `total`. The remaining sums move to the front. All lanes of a warp must call it together. The warp's
// tile begins at warp_row(), warp_column(). Put UNROLL_STORES before the loop over the rows.
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
