// kernels/gemm/item.cl: C[b][m][n] = sum over k of A[b][m][k] * B[b][k][n], then the epilogue. Item kernel: one
// work-item = MT register tiles.
//
//            TN = NV*VW columns
//          +--------------------+
//   MR     | acc[0][0] .. [NV-1]|
//   rows   | ...                | x MT
//          +--------------------+
//
// acc[MR][NV] stays in vector registers. For each k, A gives MR scalars, which are broadcast, and B gives NV vectors.
// Work-item (i, j, b) owns rows [i*MT*MR, (i+1)*MT*MR) of panel j of batch b, and all of K. K is cut into blocks of
// K_BLOCK. Each block sums into new accumulators, which are then added to sums[] (private memory, 4*MT*MR*TN bytes). So
// rounding errors stay small, and the block of B (K_BLOCK*TN*4 bytes) stays in L2 while the MT tiles use it.
//
// Inputs (offsets, strides in elements of IN_T):
//   a  A_COL_MAJOR 0: A[b][m][k] at a_batch(b) + m*a_row + k            (rows in place; a_col is ignored)
//      A_COL_MAJOR 1: A[b][m][k] at a_batch(b) + m + k*a_col            (transposed A; a_row is ignored)
//      A_COL_MAJOR 2: A[b][m][k] at a_batch(b) + m*a_row + k*a_col      (any strides, slower)
//   b  B_IN_PLACE 0:  packed and padded with zeros: B[b][k][n] at b_batch(b) + ((n / PANEL)*K + k)*PANEL + n % PANEL,
//                     ceil(N/PANEL)*K*PANEL elements per batch; b_row, b_col are ignored
//      B_IN_PLACE 1:  B[b][k][n] at b_batch(b) + k*b_row + n, rows in place. The first tile of rows of a work-item
//                     packs its panel, K_BLOCK rows at a time, while it multiplies: the stores cost nothing beside the
//                     multiply-adds, and prefetching hides the latency of B.
//      B_IN_PLACE 2:  B[b][k][n] at b_batch(b) + k*b_row + n*b_col      (any strides, slower; pack/item.cl packs a
//                     Linear weight [N][K])
//      B_IN_PLACE 3:  as 1, but without a copy. Used either if there is one tile of rows (M <= MR), which would use a
//                     copy once, or if all of B stays in L2, so that rows far apart cost little. Needs N % TN == 0.
//   a_batch(b) = (b / inner)*a_outer + (b % inner)*a_inner, the same for b_batch; a stride of 0 broadcasts.
// Global size: (ceil(M / (MR*MT)), ceil(N / TN), batches), local size (1, 1, 1).
// Epilogue macros: STORE(acc, b, m, n), STOREV(acc, b, m, n); store dimension n.
// Macros of a launch: MR (rows of a register tile; MR*NV + NV + 1 <= number of vector registers (6x4 or 12x2 of 32; 4x2
//   of 16)), NV (vectors (of VW floats) in a row of a register tile), MT (tiles (of MR rows) per work-item; 16 when
//   there are many, more for B_IN_PLACE), A_COL_MAJOR, B_IN_PLACE (layouts of A and B, see above), PREFETCH_A (1: a
//   tile prefetches the next tile's part of A, which the hardware does not foresee (A_COL_MAJOR 1, or 0 with short
//   rows)), WHOLE_VECTORS (1: N % VW == 0, no column is stored alone), PLAIN_STORES (1: the epilogue macros only store,
//   so they may have many call sites).
#define TN (NV * VW)  // columns of a tile
#define PANEL TN  // columns of a packed panel of B; a multiple of TN
#if B_IN_PLACE == 1 || B_IN_PLACE == 2
#define K_BLOCK 256  // depth of a block (see above); the private copy of B has K_BLOCK*TN floats
#else
#define K_BLOCK 512
#endif
#ifndef K_CHAINS
// independent accumulators of a tile: 4..8 if MR*NV is below 8 (small M), so that the latency of FMA is hidden
#define K_CHAINS 1
#endif
// Aligns private arrays that are read by vectors, so that no vector crosses a cache line.
#define CACHE_ALIGNED __attribute__((aligned(64)))

#define B_AHEAD 16  // rows of B that the packing tile prefetches ahead, about 100 ns

#if A_COL_MAJOR == 0
#define A_ROW(m) ((long)(m) * a_row)
#define A_AT(i, k) LOAD(row[i], k)
#elif A_COL_MAJOR == 1
#define A_ROW(m) (m)
#define A_AT(i, k) LOAD(row[i], (long)(k) * a_col)
#else
#define A_ROW(m) ((long)(m) * a_row)
#define A_AT(i, k) LOAD(row[i], (long)(k) * a_col)
#endif
#define MULTIPLY_ADD(k, bv)                                                        \
  OCL_UNROLL for (int i = 0; i < MR; ++i) {                                        \
    const VEC av = (VEC)(A_AT(i, k));                                              \
    OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]); \
  }
// What the kernel prefetches of the next tile's part of A: in each step, its elements of a transposed A; in one of LINE
// steps, the cache line of each row. To ask in each step costs a fourth of the speed with vectors of 8.
#if PREFETCH_A && A_COL_MAJOR == 1
#define ASK_FOR_A(k) PREFETCH(row[0] + MR + (long)(k) * a_col);
#else
#define ASK_FOR_A(k)
#endif
#if PREFETCH_A && A_COL_MAJOR != 1
#define ROWS_ASKED MR
#define LINE 16
#else
#define ROWS_ASKED 0
#define LINE K_BLOCK
#endif
#define ASK_FOR_ROWS(k) OCL_UNROLL for (int i = 0; i < ROWS_ASKED; ++i) PREFETCH(row[0] + (long)(MR + i) * a_row + (k));
#define PACK_FIRST (B_IN_PLACE == 1 && K_CHAINS == 1)

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int first = get_global_id(0) * (MT * MR), n0 = get_global_id(1) * TN, batch = get_global_id(2);
  a += a_offset + (batch / inner) * a_outer + (batch % inner) * a_inner;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner;
  float sums[MT * MR * TN] CACHE_ALIGNED;
#if B_IN_PLACE == 1 || B_IN_PLACE == 2
  float packed[K_BLOCK * TN] CACHE_ALIGNED;
  const int cols = min(TN, N - n0);
#endif
  // Runs once for K = 0 too: the results are then those of sums of 0.
  for (int k0 = 0; k0 == 0 || k0 < K; k0 += K_BLOCK) {
    const int kn = min(K_BLOCK, K - k0);
#if B_IN_PLACE == 3
    __global const IN_T* panel = b + (long)k0 * b_row + n0;
#define B_VECTOR(k, v) LOADV(panel, (long)(k) * b_row + (v) * VW)
#elif B_IN_PLACE
    const float* panel = packed;
#if B_IN_PLACE == 1
    if (PACK_FIRST && cols == TN) {
      // the first tile packs B below, while it multiplies
    } else if (cols == TN) {
      for (int k = 0; k < kn; ++k) {
        __global const IN_T* from = b + (long)(k0 + k) * b_row + n0;
        OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(LOADV(from, v * VW), packed + k * TN + v * VW);
      }
    } else {
      for (int k = 0; k < kn; ++k)
        for (int n = 0; n < TN; ++n) packed[k * TN + n] = n < cols ? LOAD(b, (long)(k0 + k) * b_row + n0 + n) : 0.f;
    }
#else
    for (int n = 0; n < TN; ++n) {
      if (n < cols) {
        __global const IN_T* from = b + (long)k0 * b_row + (long)(n0 + n) * b_col;
        if (b_row == 1) {
          for (int k = 0; k < kn; ++k) packed[k * TN + n] = LOAD(from, k);
        } else {
          for (int k = 0; k < kn; ++k) packed[k * TN + n] = LOAD(from, (long)k * b_row);
        }
      } else {
        for (int k = 0; k < kn; ++k) packed[k * TN + n] = 0.f;
      }
    }
#endif
#define B_VECTOR(k, v) VLOAD(panel + (k) * TN + (v) * VW)
#else
    __global const IN_T* panel = b + ((long)(n0 / PANEL) * K + k0) * PANEL + n0 % PANEL;
#define B_VECTOR(k, v) LOADV(panel, (long)(k) * PANEL + (v) * VW)
#endif
    for (int t = 0; t < MT; ++t) {
      const int m = first + t * MR;
      if (m >= M) break;
      VEC acc[MR][NV];
      __global const IN_T* row[MR];
      OCL_UNROLL for (int i = 0; i < MR; ++i) {
        row[i] = a + A_ROW(min(m + i, M - 1));
#if A_COL_MAJOR
        row[i] += (long)k0 * a_col;
#else
        row[i] += k0;
#endif
        OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
      }
      int k = 0;
#if K_CHAINS > 1
      VEC chain[K_CHAINS][MR][NV];
      OCL_UNROLL for (int u = 0; u < K_CHAINS; ++u) OCL_UNROLL for (int i = 0; i < MR; ++i)
          OCL_UNROLL for (int v = 0; v < NV; ++v) chain[u][i][v] = (VEC)(0.f);
      for (; k + K_CHAINS <= kn; k += K_CHAINS) {
        OCL_UNROLL for (int u = 0; u < K_CHAINS; ++u) OCL_UNROLL for (int v = 0; v < NV; ++v) {
          const VEC bv = B_VECTOR(k + u, v);
          OCL_UNROLL for (int i = 0; i < MR; ++i) chain[u][i][v] = fma((VEC)(A_AT(i, k + u)), bv, chain[u][i][v]);
        }
      }
      OCL_UNROLL for (int u = 0; u < K_CHAINS; ++u) OCL_UNROLL for (int i = 0; i < MR; ++i)
          OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] += chain[u][i][v];
#endif
#if PACK_FIRST
      if (t == 0 && cols == TN) {
        __global const IN_T* from = b + (long)k0 * b_row + n0;
        for (; k < kn; ++k, from += b_row) {
          VEC bv[NV];
          if (k % LINE == 0) ASK_FOR_ROWS(k)
          ASK_FOR_A(k)
          OCL_UNROLL for (int v = 0; v < NV; ++v) {
            PREFETCH(from + (long)B_AHEAD * b_row + v * VW);
            bv[v] = LOADV(from, v * VW);
            VSTORE(bv[v], packed + k * TN + v * VW);
          }
          MULTIPLY_ADD(k, bv)
        }
      }
#endif
      while (k < kn) {
        const int end = min(k + LINE, kn);
        ASK_FOR_ROWS(k)
        for (; k < end; ++k) {
          VEC bv[NV];
          ASK_FOR_A(k)
          OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = B_VECTOR(k, v);
          MULTIPLY_ADD(k, bv)
        }
      }
      float* tile = sums + (K > K_BLOCK ? t * (MR * TN) : 0);
      if (k0 > 0) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] +=
            VLOAD(tile + i * TN + v * VW);
      }
#if PLAIN_STORES
      if (k0 + kn == K && m + MR <= M && n0 + TN <= N) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
            STOREV(acc[i][v], batch, m + i, n0 + v * VW);
        continue;
      }
#endif
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
          VSTORE(acc[i][v], tile + i * TN + v * VW);
      if (k0 + kn < K) continue;
      // a loop gives the epilogue macros one call site, because they may be long
      const int rows = min(MR, M - m), width = min(TN, N - n0);
      OCL_NO_UNROLL for (int i = 0; i < rows; ++i) {
        int n = 0;
        OCL_NO_UNROLL for (; n + VW <= width; n += VW) {
          const VEC value = VLOAD(tile + i * TN + n);
          STOREV(value, batch, m + i, n0 + n);
        }
#if !WHOLE_VECTORS
        OCL_NO_UNROLL for (; n < width; ++n) STORE(tile[i * TN + n], batch, m + i, n0 + n);
#endif
      }
    }
  }
}
