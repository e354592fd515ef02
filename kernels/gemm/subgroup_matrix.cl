// kernels/gemm/subgroup_matrix.cl: batched matrix product by matrix instructions of a subgroup, C[b,m,n] = sum over k
// of A[b,m,k] * B[b,k,n]. The instructions, the loop and the slabs of the stores are in tensor_core/subgroup_matrix.cl.
//
// Strides are those of gemm/group.cl.
// Grid: global (ceil(M/TILE_M) * ceil(N/TILE_N) * GROUP_SIZE, 1, batch), local (GROUP_SIZE, 1, 1).
// Epilogue macros: STORE(acc, b, m, n). Store dimension n, VW 2 or as many elements as 16 bytes have.
#define LOAD_BOTH                                                   \
  {                                                                 \
    fetch(a_held, &a_share, TILE_M, A_K_MAJOR, A_VEC4 && a_direct); \
    fetch(b_held, &b_share, TILE_N, B_K_MAJOR, B_VEC4 && b_direct); \
  }

// a: [batch, M, K] by strides; b: [batch, K, N] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) SUBGROUP_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local uint4 local_memory[LOCAL_BYTES / 16];
  __local OPERAND_T* stage = (__local OPERAND_T*)local_memory;
  const int batch = get_group_id(2), a_direct = CHUNK_ALIGNED(a_offset), b_direct = CHUNK_ALIGNED(b_offset);
  const int2 tile = tile_at(get_group_id(0), (M + TILE_M - 1) / TILE_M, (N + TILE_N - 1) / TILE_N);
  // The literal 1 of a contiguous stride lets the compiler simplify addresses.
  const long a_width = A_VEC4 && !A_K_MAJOR ? 1 : a_row, a_depth = A_VEC4 && A_K_MAJOR ? 1 : a_col;
  const long b_width = B_VEC4 && !B_K_MAJOR ? 1 : b_col, b_depth = B_VEC4 && B_K_MAJOR ? 1 : b_row;
  a += a_offset + batch / inner * a_outer + batch % inner * a_inner + tile.x * TILE_M * a_width;
  b += b_offset + batch / inner * b_outer + batch % inner * b_inner + tile.y * TILE_N * b_width;
  OperandShare a_share = share_of(a, a_width, a_depth, M - tile.x * TILE_M, K, A_K_MAJOR);
  OperandShare b_share = share_of(b, b_width, b_depth, N - tile.y * TILE_N, K, B_K_MAJOR);
  uint4 a_held[CHUNKS(TILE_M)], b_held[CHUNKS(TILE_N)];
  FragmentC total[FRAGS_M * FRAGS_N];
  MULTIPLY_STEPS(total, stage, (K + STEP_K - 1) / STEP_K, A_K_MAJOR, B_K_MAJOR, LOAD_BOTH);

  __local float* slab = slab_of(local_memory);
  const int whole = STORES_ALIGNED && (tile.x + 1) * TILE_M <= M && (tile.y + 1) * TILE_N <= N;
  UNROLL_STORES
  for (int step = 0; step < SLABS; ++step) {
    next_slab(slab, total);
    const int m0 = tile.x * TILE_M + slab_top(step), n0 = tile.y * TILE_N + slab_left(step);
    if (whole) {
      OCL_UNROLL
      for (int v = 0; v < SLAB_VECTORS; ++v)
        STOREA(slab_vector(slab + slab_row(v) * SLAB_ROW + slab_column(v)), batch, m0 + slab_row(v),
               n0 + slab_column(v));
      continue;
    }
    OCL_NO_UNROLL
    for (int v = 0; v < SLAB_VECTORS; ++v) {
      const int m = m0 + slab_row(v), n = n0 + slab_column(v);
      __local const float* sums = slab + slab_row(v) * SLAB_ROW + slab_column(v);
      if (m >= M) continue;
      if (n + VW <= N) {
        STOREV(slab_vector(sums), batch, m, n);
      } else {
        OCL_NO_UNROLL
        for (int l = n; l < N; ++l, ++sums) STORE(*sums, batch, m, l);
      }
    }
  }
}
