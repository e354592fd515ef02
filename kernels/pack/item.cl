// kernels/pack/item.cl: packs a matrix into panels of TN columns, as gemm/item.cl reads them: P[b][j][k][c] =
// B[b][k][j*TN + c], zero from column N on. Item kernel: one work-item = K_RUN rows of one panel.
//
//      B  n ->   j*TN     (j+1)*TN            P  panel j: K rows of TN floats, one after the other
//    k  +---------+----------+---+
//    |  |         |work-item |   |            B_LAYOUT 1 (a Linear weight, [N][K]): VW x VW blocks are transposed in
//    v  |         |          |   |            registers, so each cache line is read and written once
//       +---------+----------+---+
// Inputs (strides in elements of IN_T): B[b][k][n] is at b_batch(b) + k*b_row + n with B_LAYOUT 0, at b_batch(b) + k +
//   n*b_col with 1, at b_batch(b) + k*b_row + n*b_col with 2. b_batch(b) = (b / inner)*b_outer + (b % inner)*b_inner.
// Global size: (ceil(N / TN), ceil(K / K_RUN), batches), local size (1, 1, 1).
// Epilogue macros: STORE(value, b, j, k, c), STOREV(value, b, j, k, c); store dimension c.
// Macros of a launch: TN (columns of a panel; a multiple of VW), K_RUN (rows per work-item), B_LAYOUT (see above).

// Transposes a VW x VW matrix in registers, x[VW], by log2(VW) rounds of INTERLEAVE.
#if VW == 16
#define FIRST_HALVES(a, b) \
  (float16)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#define LAST_HALVES(a, b) \
  (float16)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf)
#elif VW == 8
#define FIRST_HALVES(a, b) (float8)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3)
#define LAST_HALVES(a, b) (float8)(a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7)
#else
#define FIRST_HALVES(a, b) (float4)(a.s0, b.s0, a.s1, b.s1)
#define LAST_HALVES(a, b) (float4)(a.s2, b.s2, a.s3, b.s3)
#endif
#define INTERLEAVE(from, to)                                   \
  OCL_UNROLL for (int i_ = 0; i_ < VW / 2; ++i_) {             \
    to[2 * i_] = FIRST_HALVES(from[i_], from[i_ + VW / 2]);    \
    to[2 * i_ + 1] = LAST_HALVES(from[i_], from[i_ + VW / 2]); \
  }
#if VW == 8
#define TRANSPOSE(x)    \
  {                     \
    VEC y_[VW], z_[VW]; \
    INTERLEAVE(x, y_);  \
    INTERLEAVE(y_, z_); \
    INTERLEAVE(z_, x);  \
  }
#elif VW == 16
#define TRANSPOSE(x)   \
  {                    \
    VEC y_[VW];        \
    INTERLEAVE(x, y_); \
    INTERLEAVE(y_, x); \
    INTERLEAVE(x, y_); \
    INTERLEAVE(y_, x); \
  }
#else
#define TRANSPOSE(x)   \
  {                    \
    VEC y_[VW];        \
    INTERLEAVE(x, y_); \
    INTERLEAVE(y_, x); \
  }
#endif

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int panel = get_global_id(0), first = get_global_id(1) * K_RUN, batch = get_global_id(2);
  const int last = min(first + K_RUN, K), n0 = panel * TN;
  b += b_offset + (batch / inner) * b_outer + (batch % inner) * b_inner;
#if B_LAYOUT == 0
  if (n0 + TN <= N) {  // row by row, in the order of memory
    for (int k = first; k < last; ++k) OCL_UNROLL for (int c = 0; c < TN; c += VW) {
        const VEC row = LOADV(b, (long)k * b_row + n0 + c);
        STOREV(row, batch, panel, k, c);
      }
    return;
  }
#endif
  for (int c = 0; c < TN; c += VW) {
    const int n = n0 + c, columns = clamp(N - n, 0, VW);
    int k = first;
#if B_LAYOUT == 0
    if (columns == VW)
      for (; k < last; ++k) {
        const VEC row = LOADV(b, (long)k * b_row + n);
        STOREV(row, batch, panel, k, c);
      }
#elif B_LAYOUT == 1
    if (columns == VW)
      for (; k + VW <= last; k += VW) {
        VEC block[VW];
        OCL_UNROLL for (int i = 0; i < VW; ++i) block[i] = LOADV(b, (long)(n + i) * b_col + k);
        TRANSPOSE(block);
        OCL_UNROLL for (int i = 0; i < VW; ++i) STOREV(block[i], batch, panel, k + i, c);
      }
#endif
    for (; k < last; ++k) {
      for (int i = 0; i < columns; ++i)
        STORE(LOAD(b, (long)k * (B_LAYOUT == 1 ? 1 : b_row) + (long)(n + i) * (B_LAYOUT == 0 ? 1 : b_col)), batch,
              panel, k, c + i);
      for (int i = columns; i < VW; ++i) STORE(0.f, batch, panel, k, c + i);
    }
  }
}
