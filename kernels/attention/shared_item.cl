// kernels/attention/shared_item.cl: parameters of attention/item.cl, and its products of tiles: scores from rows and a
// packed panel, and the sum of rows that scores multiply. Comes after attention/dense_output.cl.
#ifndef MR
#define MR 6  // rows of a register tile; MR*NV + NV + 1 <= number of vector registers
#endif
#ifndef NV
#define NV 4  // vectors (of VW floats) in a row of a register tile
#endif
#define TN (NV * VW)  // columns of a packed panel
#ifndef MT
#define MT 4  // tiles (of MR rows) per work-item
#endif
#ifndef BLOCK
#define BLOCK 256  // columns of a block of scores, a multiple of TN; its MR*BLOCK floats stay in L1
#endif
#define SUM (PASS == 0 ? BLOCK : 64)  // columns that one set of accumulators adds up
#define PADDED(width) (((width) + VW - 1) / VW * VW)

// ---- lanes ----
ALWAYS_INLINE float sum_lanes4(const float4 x) {
  const float2 y = x.lo + x.hi;
  return y.x + y.y;
}
ALWAYS_INLINE float sum_lanes8(const float8 x) {
  return sum_lanes4(x.lo + x.hi);
}
ALWAYS_INLINE float sum_lanes16(const float16 x) {
  return sum_lanes8(x.lo + x.hi);
}
ALWAYS_INLINE float max_lanes4(const float4 x) {
  const float2 y = x.lo > x.hi ? x.lo : x.hi;
  return y.x > y.y ? y.x : y.y;
}
ALWAYS_INLINE float max_lanes8(const float8 x) {
  return max_lanes4(x.lo > x.hi ? x.lo : x.hi);
}
ALWAYS_INLINE float max_lanes16(const float16 x) {
  return max_lanes8(x.lo > x.hi ? x.lo : x.hi);
}

// Returns exp(x) for x <= 0 within one ulp. Below -87.3, where the result would be subnormal, it is 0; nan stays nan.
// The integer part of the exponent comes from the bits of m, because rint() is slow on some runtimes.
ALWAYS_INLINE VEC exp_lanes(const VEC given) {
  const VEC x = given < (VEC)(-87.3f) ? (VEC)(-87.3f) : given;
  const VEC m = fma(x, (VEC)(1.44269504f), (VEC)(12582912.0f)), z = m - (VEC)(12582912.0f);
  const VEC r = fma(z, (VEC)(2.12194440e-4f), fma(z, (VEC)(-0.693359375f), x));
  VEC y = (VEC)(1.9875691500e-4f);
  y = fma(y, r, (VEC)(1.3981999507e-3f));
  y = fma(y, r, (VEC)(8.3334519073e-3f));
  y = fma(y, r, (VEC)(4.1665795894e-2f));
  y = fma(y, r, (VEC)(1.6666665459e-1f));
  y = fma(y, r, (VEC)(5.0000001201e-1f));
  const VEC power = OCL_CAT(as_float, VW)((OCL_CAT(as_int, VW)(m) + 127) << 23);
  const VEC result = power * (fma(y, r * r, r) + (VEC)(1.0f));
  return given < (VEC)(-87.3f) ? (VEC)(0.0f) : result;
}

// ---- the two products ----

// Writes t[i][v] = sum over d of rows[i][d] * panel[d][v].
ALWAYS_INLINE void multiply_panel(VEC* t, const float* rows, __global const IN_T* panel, const int depth) {
  OCL_UNROLL for (int i = 0; i < MR * NV; ++i) t[i] = (VEC)(0.0f);
  for (int d = 0; d < depth; ++d) {
    VEC column[NV];
    OCL_UNROLL for (int v = 0; v < NV; ++v) column[v] = LOADV(panel, d * TN + v * VW);
    OCL_UNROLL for (int i = 0; i < MR; ++i) {
      const VEC row = (VEC)(rows[i * depth + d]);
      OCL_UNROLL for (int v = 0; v < NV; ++v) t[i * NV + v] = fma(row, column[v], t[i * NV + v]);
    }
  }
}

// Writes to s the scores of columns c .. c + TN - 1 of a block of `count` columns, times `scale`. It computes only the
// vectors that hold columns first .. count - 1, and writes zeros for the other columns.
ALWAYS_INLINE void score_panel(float* s, const float* rows, __global const IN_T* panel, const int depth,
                               const float scale, const int c, const int first, const int count) {
  if (first <= c && c + TN - VW < count) {
    VEC t[MR * NV];
    multiply_panel(t, rows, panel, depth);
    OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
        VSTORE(t[i * NV + v] * (VEC)(scale), s + i * BLOCK + c + v * VW);
    return;
  }
  OCL_NO_UNROLL for (int v = 0; v < TN; v += VW) {
    VEC t[MR];
    OCL_UNROLL for (int i = 0; i < MR; ++i) t[i] = (VEC)(0.0f);
    if (c + v < count && c + v + VW > first)
      for (int d = 0; d < depth; ++d) {
        const VEC column = LOADV(panel, d * TN + v);
        OCL_UNROLL for (int i = 0; i < MR; ++i) t[i] = fma((VEC)(rows[i * depth + d]), column, t[i]);
      }
    OCL_UNROLL for (int i = 0; i < MR; ++i) VSTORE(t[i] * (VEC)(scale), s + i * BLOCK + c + v);
  }
}

// Writes out[i][c + v] = rescale[i] * out[i][c + v] + sum over k < count of s[i][k] * w[k][c + v], for `vectors`
// vectors from float c on.
ALWAYS_INLINE void add_chunk(float* out, const float* rescale, const float* s, __global const IN_T* w, const long w_row,
                             const int count, const int c, const int width, const int vectors) {
  VEC acc[MR * NV];
  OCL_UNROLL for (int i = 0; i < MR * NV; ++i) acc[i] = (VEC)(0.0f);
  for (int k = 0; k < count; ++k) {
    VEC row[NV];
    OCL_UNROLL for (int v = 0; v < vectors; ++v) row[v] = LOADV(w, k * w_row + c + v * VW);
    OCL_UNROLL for (int i = 0; i < MR; ++i) {
      const VEC factor = (VEC)(s[i * BLOCK + k]);
      OCL_UNROLL for (int v = 0; v < vectors; ++v) acc[i * NV + v] = fma(factor, row[v], acc[i * NV + v]);
    }
  }
  OCL_UNROLL for (int i = 0; i < MR; ++i) {
    OCL_UNROLL for (int v = 0; v < vectors; ++v) {
      float* to = out + i * PADDED(width) + c + v * VW;
      VSTORE(fma((VEC)(rescale[i]), VLOAD(to), acc[i * NV + v]), to);
    }
  }
}

// Writes out = rescale * out + s w for rows of `width` floats, over `count` columns of s.
ALWAYS_INLINE void add_part(float* out, const float* rescale, const float* s, __global const IN_T* w, const long w_row,
                            const int count, const int width) {
  OCL_NO_UNROLL for (int c = 0; c < PADDED(width) / TN * TN; c += TN)
      add_chunk(out, rescale, s, w, w_row, count, c, width, NV);
  if (PADDED(width) % TN)
    add_chunk(out, rescale, s, w, w_row, count, PADDED(width) / TN * TN, width, PADDED(width) % TN / VW);
}

// Does what add_part does, with new accumulators every SUM columns. Gradients need this, because sums of terms with
// both signs lose more precision. Their rescale is 1.
ALWAYS_INLINE void add_rows(float* out, const float* rescale, const float* s, __global const IN_T* w, const long w_row,
                            const int count, const int width) {
  OCL_NO_UNROLL for (int k = 0; k < count; k += SUM)
      add_part(out, rescale, s + k, w + k * w_row, w_row, min(SUM, count - k), width);
}

// Copies rows first .. first + MR - 1 to `to` as dense floats. Beyond row count - 1 it copies this last row again.
ALWAYS_INLINE void load_rows(float* to, __global const IN_T* from, const long stride, const int first, const int count,
                             const int depth) {
  for (int i = 0; i < MR; ++i) {
    __global const IN_T* row = from + (long)min(first + i, count - 1) * stride;
    for (int d = 0; d < depth / VW * VW; d += VW) VSTORE(LOADV(row, d), to + i * depth + d);
    for (int d = depth / VW * VW; d < depth; ++d) to[i * depth + d] = LOAD(row, d);
  }
}
