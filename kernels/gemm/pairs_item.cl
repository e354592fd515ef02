// kernels/gemm/pairs_item.cl: C[b][m][n] = sum over k of A[b][m][k] * B[b][k][n] for bf16, then the epilogue. Item kernel: one
// work-item = MT register tiles of MR x TN, as in gemm/item.cl. An instruction adds the products of two neighbours along K
// (base/pairs.cl).
//
// A work-item brings its panel of B into pairs, K_BLOCK rows at a time: packed[k / 2][n] has B[k][n] in its lower half and
// B[k + 1][n] in its upper half. A block sums into new accumulators, which are then added to sums[].
//
// Inputs (offsets, strides in elements):
//   a  A_LAYOUT 0: A[b][m][k] at a_batch(b) + m*a_row + k, read in place (a_col is ignored)
//      A_LAYOUT 1: A[b][m][k] at a_batch(b) + m + k*a_col; the rows of a work-item are brought into pairs too (a_row is ignored)
//   b  B_LAYOUT 0: B[b][k][n] at b_batch(b) + k*b_row + n (b_col is ignored)
//      B_LAYOUT 1: B[b][k][n] at b_batch(b) + k + n*b_col, a Linear weight [N][K] (b_row is ignored)
//      B_LAYOUT 2: B[b][k][n] at b_batch(b) + k*b_row + n*b_col (slower)
//   a_batch(b) = (b / inner)*a_outer + (b % inner)*a_inner, the same for b_batch; a stride of 0 broadcasts.
// Arguments, epilogue macros, global and local size: as in gemm/item.cl.
// Macros of a launch: MR (rows of a register tile), NV (vectors of 16 floats in a row of a register tile), MT (tiles
//   per work-item), A_LAYOUT, B_LAYOUT (see above), PLAIN_STORES (1: the epilogue macros only store, so they may have
//   many call sites).
#define TN (NV * 16)  // columns of a tile
#define K_BLOCK 512  // depth of a block, even
#define CACHE_ALIGNED __attribute__((aligned(64)))
#ifndef STORE  // without generated epilogue macros: dense C[b][m][n]
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#define Y_AT(b, m, n) (y_offset + ((ulong)(b) * M + (m)) * N + (n))
#define STORE(acc, b, m, n) (y[Y_AT(b, m, n)] = (acc))
#define STOREV(acc, b, m, n) vstore16((acc), (size_t)0, y + Y_AT(b, m, n))
#endif

#define AT(p) (*(const uint16*)(p))
// 16 pairs of a row
#define PAIRS_AT(p) (uint16)(as_uint8(vload16((size_t)0, (p))), as_uint8(vload16((size_t)1, (p))))
#define PUT_PAIRS(x, p) (*(uint16*)(p) = (x))
// Two elements of a strided line; the second one is 0 if it is beyond the end.
#define PAIR_OF(p, step, has_second) ((uint)(p)[0] | ((has_second) ? (uint)(p)[step] << 16 : 0u))

#define ROWS ((MT * MR + 15) / 16 * 16)  // of A in pairs

// One round of the transposition of 16 x 16 pairs: rows i and i + 8 become rows 2i and 2i + 1, interleaved.
#define INTERLEAVE(from, to)                                                                                         \
  OCL_UNROLL for (int i_ = 0; i_ < 8; ++i_) {                                                                        \
    const uint16 u_ = from[i_], v_ = from[i_ + 8];                                                                   \
    to[2 * i_] = (uint16)(u_.s0, v_.s0, u_.s1, v_.s1, u_.s2, v_.s2, u_.s3, v_.s3, u_.s4, v_.s4, u_.s5, v_.s5, u_.s6, \
                          v_.s6, u_.s7, v_.s7);                                                                      \
    to[2 * i_ + 1] = (uint16)(u_.s8, v_.s8, u_.s9, v_.s9, u_.sa, v_.sa, u_.sb, v_.sb, u_.sc, v_.sc, u_.sd, v_.sd,    \
                              u_.se, v_.se, u_.sf, v_.sf);                                                           \
  }

// Brings kn rows of B from b on, cols columns of a panel, into pairs.
OCL_INLINE void pack_b(uint* packed, __global const ushort* b, const int b_row, const int b_col, const int kn,
                       const int cols) {
#if B_LAYOUT == 0
  if (cols == TN) {
    int k = 0;
    for (; k + 2 <= kn; k += 2) OCL_UNROLL for (int n = 0; n < TN; n += 16) {
        __global const ushort* from = b + (long)k * b_row + n;
        PUT_PAIRS(JOIN_PAIRS(vload16((size_t)0, from), vload16((size_t)0, from + b_row)), packed + k / 2 * TN + n);
      }
    if (k < kn)
      for (int n = 0; n < TN; n += 16)
        PUT_PAIRS(convert_uint16(vload16((size_t)0, b + (long)k * b_row + n)), packed + k / 2 * TN + n);
    return;
  }
  const long row = b_row, col = 1;
#else
  const long row = B_LAYOUT == 1 ? 1 : b_row, col = b_col;
#endif
  for (int n0 = 0; n0 < TN; n0 += 16) {
    int k = 0;
#if B_LAYOUT == 1
    if (n0 + 16 <= cols)
      for (; k + 32 <= kn; k += 32) {
        uint16 x[16], y[16];
        OCL_UNROLL for (int i = 0; i < 16; ++i) x[i] = PAIRS_AT(b + (n0 + i) * col + k);
        INTERLEAVE(x, y)
        INTERLEAVE(y, x)
        INTERLEAVE(x, y)
        INTERLEAVE(y, x)
        OCL_UNROLL for (int i = 0; i < 16; ++i) PUT_PAIRS(x[i], packed + (k / 2 + i) * TN + n0);
      }
#endif
    for (; k < kn; k += 2)
      for (int n = n0; n < n0 + 16; ++n)
        packed[k / 2 * TN + n] = n < cols ? PAIR_OF(b + k * row + n * col, row, k + 1 < kn) : 0u;
  }
}

// Brings kn columns of A from a on, rows of a work-item that there are, into pairs: packed[k / 2][m].
OCL_INLINE void pack_a(uint* packed, __global const ushort* a, const int a_col, const int kn, const int rows) {
  for (int k = 0; k < kn; k += 2) {
    __global const ushort* from = a + (long)k * a_col;
    uint* to = packed + k / 2 * ROWS;
    int m = 0;
    if (k + 1 < kn)
      for (; m + 16 <= rows; m += 16)
        PUT_PAIRS(JOIN_PAIRS(vload16((size_t)0, from + m), vload16((size_t)0, from + a_col + m)), to + m);
    for (; m < rows; ++m) to[m] = PAIR_OF(from + m, a_col, k + 1 < kn);
  }
}

#define MULTIPLY_ADD(k, pair_of_row)                                                       \
  {                                                                                        \
    uint16 bv[NV];                                                                         \
    OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = AT(packed + (k) / 2 * TN + v * 16);    \
    OCL_UNROLL for (int i = 0; i < MR; ++i) {                                              \
      const uint16 av = (uint16)(pair_of_row);                                             \
      OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = add_pairs(acc[i][v], av, bv[v]); \
    }                                                                                      \
  }

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int first = get_global_id(0) * (MT * MR), n0 = get_global_id(1) * TN, batch = get_global_id(2);
  a += a_offset + (batch / inner) * a_outer + (batch % inner) * a_inner;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner;
  b += (long)n0 * (B_LAYOUT == 0 ? 1 : b_col);
  float sums[MT * MR * TN] CACHE_ALIGNED;
  uint packed[K_BLOCK / 2 * TN] CACHE_ALIGNED;
#if A_LAYOUT == 1
  uint pairs[K_BLOCK / 2 * ROWS] CACHE_ALIGNED;
#endif
  // Runs once for K = 0 too: the results are then those of sums of 0.
  for (int k0 = 0; k0 == 0 || k0 < K; k0 += K_BLOCK) {
    const int kn = min(K_BLOCK, K - k0);
    pack_b(packed, b + (long)k0 * (B_LAYOUT == 1 ? 1 : b_row), b_row, b_col, kn, min(TN, N - n0));
#if A_LAYOUT == 1
    pack_a(pairs, a + first + (long)k0 * a_col, a_col, kn, min(MT * MR, M - first));
#endif
    for (int t = 0; t < MT; ++t) {
      const int m = first + t * MR;
      if (m >= M) break;
      float16 acc[MR][NV];
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (float16)(0.f);
#if A_LAYOUT == 1
      const uint* row = pairs + t * MR;  // rows beyond M are not stored, so their values do not matter
      for (int k = 0; k < kn; k += 2) MULTIPLY_ADD(k, row[k / 2 * ROWS + i])
#else
      __global const ushort* row[MR];
      OCL_UNROLL for (int i = 0; i < MR; ++i) row[i] = a + (long)min(m + i, M - 1) * a_row + k0;
      for (int k = 0; k + 2 <= kn; k += 2) MULTIPLY_ADD(k, PAIR_AT(row[i] + k))
      if (kn % 2 != 0) MULTIPLY_ADD(kn - 1, (uint)row[i][kn - 1])
#endif
      float* tile = sums + (K > K_BLOCK ? t * (MR * TN) : 0);
      if (k0 > 0) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] +=
            vload16((size_t)0, tile + i * TN + v * 16);
      }
#if PLAIN_STORES
      if (k0 + kn == K && m + MR <= M && n0 + TN <= N) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
            STOREV(acc[i][v], batch, m + i, n0 + v * 16);
        continue;
      }
#endif
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
          vstore16(acc[i][v], (size_t)0, tile + i * TN + v * 16);
      if (k0 + kn < K) continue;
      // a loop gives the epilogue macros one call site, because they may be long
      const int rows = min(MR, M - m), width = min(TN, N - n0);
      OCL_NO_UNROLL for (int i = 0; i < rows; ++i) {
        int n = 0;
        OCL_NO_UNROLL for (; n + 16 <= width; n += 16) {
          const float16 value = vload16((size_t)0, tile + i * TN + n);
          STOREV(value, batch, m + i, n0 + n);
        }
        OCL_NO_UNROLL for (; n < width; ++n) STORE(tile[i * TN + n], batch, m + i, n0 + n);
      }
    }
  }
}
