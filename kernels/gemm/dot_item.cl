// kernels/gemm/dot_item.cl: C[b][m][n] = sum over k of A[b][m][k] * B[b][k][n] for few rows m, such as a Linear layer
// at batch 1..16. B is read once and in place. Item kernel: one work-item = MT column tiles of NR columns, all M rows.
//
//     B row n   |----- k ----->|
//     B row n+1 |------------->|
//     A row m   |------------->|
// Vectors run along k. acc[MR][NR] are vectors of VW partial sums. At the end the lanes of each vector are added in a
// fixed order. NR rows of B pass through the cache once for all tiles of MR rows of A.
//
// Inputs: a  A[b][m][k] at a_batch(b) + m*a_row + k;   b  B[b][k][n] at b_batch(b) + n*b_col + k; batches as in
//   gemm/item.cl
// Global size: (ceil(N / (NR*MT)), batches, 1), local size (1, 1, 1).
// Epilogue macros: STORE(acc, b, m, n) only.
// Macros of a launch: MR (rows of A in a register tile: M, if that is at most 8), NR (rows of B in a register tile;
//   MR*NR <= 24 of 32 registers (12 of 16)), MT (column tiles per work-item).

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int batch = get_global_id(1);
  a += a_offset + (batch / inner) * a_outer + (batch % inner) * a_inner;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner;
  const int vectors = K / VW * VW;
  for (int t = 0; t < MT; ++t) {
    const int n0 = (get_global_id(0) * MT + t) * NR;
    if (n0 >= N) break;
    __global const IN_T* column[NR];
    OCL_UNROLL for (int j = 0; j < NR; ++j) column[j] = b + (long)min(n0 + j, N - 1) * b_col;
    for (int m = 0; m < M; m += MR) {
      VEC acc[MR][NR];
      __global const IN_T* row[MR];
      OCL_UNROLL for (int i = 0; i < MR; ++i) {
        row[i] = a + (long)min(m + i, M - 1) * a_row;
        OCL_UNROLL for (int j = 0; j < NR; ++j) acc[i][j] = (VEC)(0.f);
      }
      for (int k = 0; k < vectors; k += VW) {
        VEC av[MR];
        OCL_UNROLL for (int i = 0; i < MR; ++i) av[i] = LOADV(row[i], k);
        OCL_UNROLL for (int j = 0; j < NR; ++j) {
          const VEC bv = LOADV(column[j], k);
          OCL_UNROLL for (int i = 0; i < MR; ++i) acc[i][j] = fma(av[i], bv, acc[i][j]);
        }
      }
      float lanes[MR * NR * VW];  // an array, so that the loop below has only one call of the epilogue macros
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int j = 0; j < NR; ++j)
          VSTORE(acc[i][j], lanes + (i * NR + j) * VW);
      for (int i = 0; i < min(MR, M - m); ++i)
        for (int j = 0; j < min(NR, N - n0); ++j) {
          float* sum = lanes + (i * NR + j) * VW;
          for (int half_width = VW / 2; half_width > 0; half_width /= 2)
            for (int l = 0; l < half_width; ++l) sum[l] += sum[l + half_width];
          __global const IN_T* a_tail = a + (long)(m + i) * a_row;
          __global const IN_T* b_tail = b + (long)(n0 + j) * b_col;
          for (int k = vectors; k < K; ++k) sum[0] = fma(LOAD(a_tail, k), LOAD(b_tail, k), sum[0]);
          STORE(sum[0], batch, m + i, n0 + j);
        }
    }
  }
}
