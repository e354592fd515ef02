// kernels/gemm/dot_pairs_item.cl: gemm/dot_item.cl for bf16 and int8: few rows, such as a Linear layer at batch 1..16. An
// instruction multiplies 16 words of neighbours along K (base/pairs.cl).
//
// acc[MR][NR] are vectors of partial sums. At the end 16 of them become one vector, whose lane i is the sum of the lanes of
// vector i. The results of a work-item are collected, so that whole vectors are stored.
//
// Inputs, arguments, global and local size: as in gemm/dot_item.cl. M is at most 16. The results of int8 are int.
// Macros of a launch: MR (rows of A in a register tile, at most 8), NR (rows of B in a register tile; MR*NR <= 16), MT (column
//   tiles per work-item; NR*MT is a multiple of 16).
#define MOST_ROWS 16
#define COLUMNS (NR * MT)

#ifdef IN_INT8
#define NUMBER(p, i) ((int)(char)(p)[i])
#else
#define NUMBER(p, i) LOAD(p, i)
#endif

// Adds the halves of each of 2 * COUNT vectors; the results of vectors i and i + COUNT are interleaved in vector i.
#define ADD_HALVES(x, COUNT)                                                                                         \
  OCL_UNROLL for (int i_ = 0; i_ < COUNT; ++i_) {                                                                    \
    const SUMS u_ = x[i_], v_ = x[i_ + COUNT];                                                                       \
    x[i_] = (SUMS)(u_.s0, v_.s0, u_.s1, v_.s1, u_.s2, v_.s2, u_.s3, v_.s3, u_.s4, v_.s4, u_.s5, v_.s5, u_.s6, v_.s6, \
                   u_.s7, v_.s7) +                                                                                   \
            (SUMS)(u_.s8, v_.s8, u_.s9, v_.s9, u_.sa, v_.sa, u_.sb, v_.sb, u_.sc, v_.sc, u_.sd, v_.sd, u_.se, v_.se, \
                   u_.sf, v_.sf);                                                                                    \
  }

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int first = get_global_id(0) * COLUMNS, batch = get_global_id(1), columns = min(COLUMNS, N - first);
  a += a_offset + (batch / inner) * a_outer + (batch % inner) * a_inner;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner + (long)first * b_col;
  const int vectors = K / VECTOR_K * VECTOR_K;
  SUM starts[MOST_ROWS], results[MOST_ROWS][COLUMNS];
  for (int m = 0; m < M; m += MR) {
    __global const IN_T* row[MR];
    OCL_UNROLL for (int i = 0; i < MR; ++i) row[i] = a + (long)min(m + i, M - 1) * a_row;
    first_sums(starts + m, row, MR, vectors);
  }
  for (int n = 0; n < columns; n += NR) {
    __global const IN_T* column[NR];
    OCL_UNROLL for (int j = 0; j < NR; ++j) column[j] = b + (long)min(n + j, columns - 1) * b_col;
    for (int m = 0; m < M; m += MR) {
      SUMS acc[16];  // MR x NR
      OCL_UNROLL for (int i = 0; i < 16; ++i) acc[i] = (SUMS)(0);
      __global const IN_T* row[MR];
      OCL_UNROLL for (int i = 0; i < MR; ++i) row[i] = a + (long)min(m + i, M - 1) * a_row;
      for (int k = 0; k < vectors; k += VECTOR_K) {
        uint16 av[MR];
        OCL_UNROLL for (int i = 0; i < MR; ++i) av[i] = WORDS_AT(row[i] + k);
        OCL_UNROLL for (int j = 0; j < NR; ++j) {
          const uint16 bv = WORDS_AT(column[j] + k) ^ OFFSET;
          OCL_UNROLL for (int i = 0; i < MR; ++i) acc[i * NR + j] = add_products(acc[i * NR + j], av[i], bv);
        }
      }
      ADD_HALVES(acc, 8)
      ADD_HALVES(acc, 4)
      ADD_HALVES(acc, 2)
      ADD_HALVES(acc, 1)
      SUM sums[16];
      vstore16(acc[0], (size_t)0, sums);
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int j = 0; j < NR; ++j) results[m + i][n + j] =
          sums[i * NR + j] + starts[m + i];
    }
  }
  for (int m = 0; m < M; ++m) {
    if (vectors < K)
      for (int n = 0; n < columns; ++n)
        for (int k = vectors; k < K; ++k)
          results[m][n] += NUMBER(a + (long)m * a_row, k) * NUMBER(b + (long)n * b_col, k);
    int n = 0;
    OCL_NO_UNROLL for (; n + 16 <= columns; n += 16) {
      const SUMS value = vload16((size_t)0, results[m] + n);
      STOREV(value, batch, m, first + n);
    }
    OCL_NO_UNROLL for (; n < columns; ++n) STORE(results[m][n], batch, m, first + n);
  }
}
