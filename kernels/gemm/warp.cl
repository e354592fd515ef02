// kernels/gemm/warp.cl: batched matrix product on warp tensor cores, C[b,m,n] = sum over k of A[b,m,k] * B[b,k,n]. The
// loop is in tensor_core/warp.cl, the stores use the vectors of tensor_core/store.cl.
//
// Strides are those of gemm/group.cl.
// Grid: global (ceil(M/TILE_M) * ceil(N/TILE_N) * GROUP_SIZE, 1, batch), local (GROUP_SIZE, 1, 1).
// Epilogue macros: STORE(acc, b, m, n). Store dimension n, VW 2 or as many elements as 16 bytes have.
#define STAGE_BOTH(to)                                               \
  {                                                                  \
    if (direct) {                                                    \
      stage(to, &a_share, TILE_M, A_K_MAJOR, A_VEC4);                \
      stage((to) + A_ELEMENTS, &b_share, TILE_N, B_K_MAJOR, B_VEC4); \
    } else {                                                         \
      stage(to, &a_share, TILE_M, A_K_MAJOR, 0);                     \
      stage((to) + A_ELEMENTS, &b_share, TILE_N, B_K_MAJOR, 0);      \
    }                                                                \
  }

// a: [batch, M, K] by strides; b: [batch, K, N] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  LOCAL_STAGES(stages);
  const int batch = get_group_id(2), direct = CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset);
  const int2 tile = tile_at(get_group_id(0), (M + TILE_M - 1) / TILE_M, (N + TILE_N - 1) / TILE_N);
  // The literal 1 of a contiguous stride lets the compiler simplify addresses.
  const long a_width = A_VEC4 && !A_K_MAJOR ? 1 : a_row, a_depth = A_VEC4 && A_K_MAJOR ? 1 : a_col;
  const long b_width = B_VEC4 && !B_K_MAJOR ? 1 : b_col, b_depth = B_VEC4 && B_K_MAJOR ? 1 : b_row;
  a += a_offset + batch / inner * a_outer + batch % inner * a_inner + tile.x * TILE_M * a_width;
  b += b_offset + batch / inner * b_outer + batch % inner * b_inner + tile.y * TILE_N * b_width;
  OperandShare a_share = share_of(a, a_width, a_depth, M - tile.x * TILE_M, K, TILE_M, A_K_MAJOR);
  OperandShare b_share = share_of(b, b_width, b_depth, N - tile.y * TILE_N, K, TILE_N, B_K_MAJOR);
  float total[SUMS];
  MULTIPLY_STEPS(total, stages, (K + TILE_K - 1) / TILE_K, A_K_MAJOR, B_K_MAJOR, STAGE_BOTH);

  const int m0 = tile.x * TILE_M + warp_row(), n0 = tile.y * TILE_N + warp_column();
  const int whole = STORES_ALIGNED && (tile.x + 1) * TILE_M <= M && (tile.y + 1) * TILE_N <= N;
  UNROLL_STORES
  for (int step = 0; step < WARP_M / 16; ++step) {
    RowVector rows[2 * LANE_VECTORS];
    next_warp_rows(rows, total);
    if (whole) {
      OCL_UNROLL
      for (int i = 0; i < 2 * LANE_VECTORS; ++i)
        STOREA(rows[i], batch, m0 + step * 16 + i / LANE_VECTORS * 8, n0 + vector_column(i % LANE_VECTORS));
      continue;
    }
    OCL_UNROLL
    for (int i = 0; i < 2 * LANE_VECTORS; ++i) {
      RowVector v = rows[i];
      const int m = m0 + step * 16 + i / LANE_VECTORS * 8, n = n0 + vector_column(i % LANE_VECTORS);
      if (m >= M) continue;
      if (n + VW <= N) {
        STOREV(v, batch, m, n);
      } else {
        OCL_NO_UNROLL
        for (int l = n; l < N; ++l, v = ROTATED(v)) STORE(v.s0, batch, m, l);
      }
    }
  }
}
