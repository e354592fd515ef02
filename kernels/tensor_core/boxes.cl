// kernels/tensor_core/boxes.cl: one work-item copies the operands of a product in boxes. Comes after
// tensor_core/warpgroup.cl.
#if BOXES
#if BATCHED
#define COPY_BOX(to, map, column, row, matrix, bar) copy_matrix_box(to, map, column, row, (matrix).x, (matrix).y, bar)
#else
#define COPY_BOX(to, map, column, row, matrix, bar) copy_box(to, map, column, row, bar)
#endif
// Copies an operand of a step: rows or columns `width0` to `width0` + width - 1 and TILE_K of the depth from `k` on.
// matrix: of the batch, with BATCHED. Maps are then those of head_map, and a box lies in one matrix.
ALWAYS_INLINE void stage_boxes(__local OPERAND_T* to, const ulong map, const int width0, const int k, const int2 matrix,
                               const int width, const int k_major, const uint bar) {
  if (k_major) {
    COPY_BOX(local_address(to), map, k, width0, matrix, bar);
    return;
  }
  OCL_UNROLL
  for (int i = 0; i < width / 64; ++i)
    COPY_BOX(local_address(to + i * BLOCK_ELEMENTS), map, width0 + i * 64, k, matrix, bar);
}
#if B_KEPT
// Copies B of column `column` of tiles. One work-item calls it, and consumers wait for it once.
ALWAYS_INLINE void stage_kept(const Pipeline line, const ulong b_map, const int column, const int b_k_major) {
  const uint full = line.empty + 8 * STAGES;
  barrier_expect(full, KEPT_ELEMENTS * sizeof(OPERAND_T));
  for (int step = 0; step < B_STEPS; ++step)
    stage_boxes(line.stages + STAGES * STAGE_ELEMENTS + step * B_ELEMENTS, b_map, column * TILE_N, step * TILE_K,
                (int2)(0), TILE_N, b_k_major, full);
}
ALWAYS_INLINE void wait_for_kept(const Pipeline line) {
  barrier_wait(line.empty + 8 * STAGES, 0);
}
#endif
// Copies both operands of the steps of a tile, or A alone with B_KEPT. One work-item calls it. matrices: of A, then of B.
ALWAYS_INLINE void stage_tile_boxes(const Pipeline line, const int begin, const int steps, const int2 tile,
                                    const int4 matrices, const ulong a_map, const ulong b_map, const int a_k_major,
                                    const int b_k_major) {
  for (int step = 0; step < steps; ++step) {
    __local OPERAND_T* to = producer_acquire(line, begin + step);
    const uint full = line.full + 8 * ((begin + step) % STAGES);
    barrier_expect(full, STAGE_ELEMENTS * sizeof(OPERAND_T));
    stage_boxes(to, a_map, tile.x * TILE_M, step * TILE_K, matrices.lo, TILE_M, a_k_major, full);
    if (!B_KEPT)
      stage_boxes(to + A_ELEMENTS, b_map, tile.y * TILE_N, step * TILE_K, matrices.hi, TILE_N, b_k_major, full);
  }
}
#endif
