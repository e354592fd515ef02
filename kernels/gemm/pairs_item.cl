// kernels/gemm/pairs_item.cl: C[b][m][n] = sum over k of A[b][m][k] * B[b][k][n] for bf16 and int8, then the epilogue. Item
// kernel: one work-item = MT register tiles of MR x TN, as in gemm/item.cl. An instruction adds the products of a word: two bf16
// or four int8 that are neighbours along K (base/pairs.cl).
//
// A work-item brings its panel of B into words, K_BLOCK rows at a time: packed[k / PER_WORD][n] has B[k][n] in its lowest bits.
// A block sums into new accumulators, which are then added to sums[].
//
// Inputs (offsets, strides in elements):
//   a  A_LAYOUT 0: A[b][m][k] at a_batch(b) + m*a_row + k, read in place (a_col is ignored)
//      A_LAYOUT 1: A[b][m][k] at a_batch(b) + m + k*a_col; the rows of a work-item are brought into words too (a_row is ignored)
//   b  B_LAYOUT 0: B[b][k][n] at b_batch(b) + k*b_row + n (b_col is ignored)
//      B_LAYOUT 1: B[b][k][n] at b_batch(b) + k + n*b_col, a Linear weight [N][K] (b_row is ignored)
//      B_LAYOUT 2: B[b][k][n] at b_batch(b) + k*b_row + n*b_col (slower)
//   a_batch(b) = (b / inner)*a_outer + (b % inner)*a_inner, the same for b_batch; a stride of 0 broadcasts.
// Arguments, epilogue macros, global and local size: as in gemm/item.cl. The results of int8 are int.
// Macros of a launch: MR (rows of a register tile), NV (vectors of 16 sums in a row of a register tile), MT (tiles
//   per work-item), A_LAYOUT, B_LAYOUT (see above), PLAIN_STORES (1: the epilogue macros only store, so they may have
//   many call sites).
#define TN (NV * 16)  // columns of a tile
#define BLOCK_WORDS 256  // words of a block along K
#define K_BLOCK (BLOCK_WORDS * PER_WORD)
#define CACHE_ALIGNED __attribute__((aligned(64)))

#define AT(p) (*(const uint16*)(p))
#define PUT_WORDS(x, p) (*(uint16*)(p) = (x))

#define ROWS ((MT * MR + 15) / 16 * 16)  // of A in words

// One round of the transposition of 16 x 16 words: rows i and i + 8 become rows 2i and 2i + 1, interleaved.
#define INTERLEAVE(from, to)                                                                                         \
  OCL_UNROLL for (int i_ = 0; i_ < 8; ++i_) {                                                                        \
    const uint16 u_ = from[i_], v_ = from[i_ + 8];                                                                   \
    to[2 * i_] = (uint16)(u_.s0, v_.s0, u_.s1, v_.s1, u_.s2, v_.s2, u_.s3, v_.s3, u_.s4, v_.s4, u_.s5, v_.s5, u_.s6, \
                          v_.s6, u_.s7, v_.s7);                                                                      \
    to[2 * i_ + 1] = (uint16)(u_.s8, v_.s8, u_.s9, v_.s9, u_.sa, v_.sa, u_.sb, v_.sb, u_.sc, v_.sc, u_.sd, v_.sd,    \
                              u_.se, v_.se, u_.sf, v_.sf);                                                           \
  }

// The words of 16 neighbours, whose rows are `row` elements apart; `left` rows are left.
OCL_INLINE uint16 words_of(__global const IN_T* p, const int row, const int left) {
  uint16 words = convert_uint16(vload16((size_t)0, p));
  OCL_UNROLL for (int i = 1; i < PER_WORD; ++i) if (i < left) words |=
      convert_uint16(vload16((size_t)0, p + (long)i * row)) << (uint16)(32 / PER_WORD * i);
  return words;
}

// Brings kn rows of B from b on, cols columns of a panel, into words.
OCL_INLINE void pack_b(uint* packed, __global const IN_T* b, const int b_row, const int b_col, const int kn,
                       const int cols) {
#if B_LAYOUT == 0
  if (cols == TN) {
    for (int k = 0; k < kn; k += PER_WORD)
      OCL_UNROLL for (int n = 0; n < TN; n += 16)
          PUT_WORDS(words_of(b + (long)k * b_row + n, b_row, kn - k) ^ OFFSET, packed + k / PER_WORD * TN + n);
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
      for (; k + VECTOR_K <= kn; k += VECTOR_K) {
        uint16 x[16], y[16];
        OCL_UNROLL for (int i = 0; i < 16; ++i) x[i] = WORDS_AT(b + (n0 + i) * col + k);
        INTERLEAVE(x, y)
        INTERLEAVE(y, x)
        INTERLEAVE(x, y)
        INTERLEAVE(y, x)
        OCL_UNROLL for (int i = 0; i < 16; ++i) PUT_WORDS(x[i] ^ OFFSET, packed + (k / PER_WORD + i) * TN + n0);
      }
#endif
    for (; k < kn; k += PER_WORD)
      for (int n = n0; n < n0 + 16; ++n)
        packed[k / PER_WORD * TN + n] = n < cols ? word_of(b + k * row + n * col, row, kn - k) ^ OFFSET : 0u;
  }
}

// Brings kn columns of A from a on, rows of a work-item that there are, into words: packed[k / PER_WORD][m].
OCL_INLINE void pack_a(uint* packed, __global const IN_T* a, const int a_col, const int kn, const int rows) {
  for (int k = 0; k < kn; k += PER_WORD) {
    __global const IN_T* from = a + (long)k * a_col;
    uint* to = packed + k / PER_WORD * ROWS;
    int m = 0;
    for (; m + 16 <= rows; m += 16) PUT_WORDS(words_of(from + m, a_col, kn - k), to + m);
    for (; m < rows; ++m) to[m] = word_of(from + m, a_col, kn - k);
  }
}

// What the sums of MR rows of A in words start at; see first_sums. Several chains hide the latency of the instruction.
OCL_INLINE void first_packed(SUM* starts, const uint* row, const int kn) {
#ifdef IN_INT8
  int16 parts[4] = {(int16)(0), (int16)(0), (int16)(0), (int16)(0)};
  for (int k = 0; k < kn; k += 4 * PER_WORD)
    OCL_UNROLL for (int i = 0; i < 4; ++i) if (k + i * PER_WORD < kn) parts[i] =
        add_products(parts[i], vload16((size_t)0, row + (k / PER_WORD + i) * ROWS), (uint16)(0x01010101u));
  vstore16(-128 * (parts[0] + parts[1] + parts[2] + parts[3]), (size_t)0, starts);
#else
  vstore16((float16)(0.f), (size_t)0, starts);
#endif
}

#define MULTIPLY_ADD(k, word_of_row)                                                           \
  {                                                                                            \
    uint16 bv[NV];                                                                             \
    OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = AT(packed + (k) / PER_WORD * TN + v * 16); \
    OCL_UNROLL for (int i = 0; i < MR; ++i) {                                                  \
      const uint16 av = (uint16)(word_of_row);                                                 \
      OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = add_products(acc[i][v], av, bv[v]);  \
    }                                                                                          \
  }

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int first = get_global_id(0) * (MT * MR), n0 = get_global_id(1) * TN, batch = get_global_id(2);
  a += a_offset + (batch / inner) * a_outer + (batch % inner) * a_inner;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner;
  b += (long)n0 * (B_LAYOUT == 0 ? 1 : b_col);
  SUM sums[MT * MR * TN] CACHE_ALIGNED;
  uint packed[BLOCK_WORDS * TN] CACHE_ALIGNED;
#if A_LAYOUT == 1
  uint words[BLOCK_WORDS * ROWS + 16] CACHE_ALIGNED;  // 16 words are read where a tile begins
#endif
  // Runs once for K = 0 too: the results are then those of sums of 0.
  for (int k0 = 0; k0 == 0 || k0 < K; k0 += K_BLOCK) {
    const int kn = min(K_BLOCK, K - k0);
    pack_b(packed, b + (long)k0 * (B_LAYOUT == 1 ? 1 : b_row), b_row, b_col, kn, min(TN, N - n0));
#if A_LAYOUT == 1
    pack_a(words, a + first + (long)k0 * a_col, a_col, kn, min(MT * MR, M - first));
#endif
    for (int t = 0; t < MT; ++t) {
      const int m = first + t * MR;
      if (m >= M) break;
      SUMS acc[MR][NV];
      SUM starts[16];
#if A_LAYOUT == 1
      const uint* row = words + t * MR;  // rows beyond M are not stored, so their values do not matter
      first_packed(starts, row, kn);
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (SUMS)(starts[i]);
      for (int k = 0; k < kn; k += PER_WORD) MULTIPLY_ADD(k, row[k / PER_WORD * ROWS + i])
#else
      __global const IN_T* row[MR];
      OCL_UNROLL for (int i = 0; i < MR; ++i) row[i] = a + (long)min(m + i, M - 1) * a_row + k0;
      first_sums(starts, row, MR, kn);
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (SUMS)(starts[i]);
      const int whole = kn / PER_WORD * PER_WORD;
      for (int k = 0; k < whole; k += PER_WORD) MULTIPLY_ADD(k, WORD_AT(row[i] + k))
      if (whole < kn) MULTIPLY_ADD(whole, word_of(row[i] + whole, 1, kn - whole))
#endif
      SUM* tile = sums + (K > K_BLOCK ? t * (MR * TN) : 0);
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
          const SUMS value = vload16((size_t)0, tile + i * TN + n);
          STOREV(value, batch, m + i, n0 + n);
        }
        OCL_NO_UNROLL for (; n < width; ++n) STORE(tile[i * TN + n], batch, m + i, n0 + n);
      }
    }
  }
}
