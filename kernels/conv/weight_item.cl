// kernels/conv/weight_item.cl: weight gradient of a 2-D convolution, groups included.
// dw[k][c][r][s] = sum over n, oh, ow of x[n][c][oh*stride_h - pad_h + r*dilation_h][ow*stride_w - pad_w +
// s*dilation_w] * dy[n][k][oh][ow]. Item kernel: a GEMM with rows j = (r, s, c) flattened, columns k, and the pixels
// (n, oh, ow) as the inner dimension.
//
//   One work-item: MT tiles of MR rows j x TN = NV*VW columns k of one group, over the pixels of its split.
//            k ->
//    j +------------------------+
//    | | acc[0][0] .. [NV-1]    | x MT
//    v | ...      [MR-1]        |
//      +------------------------+
//   A block of at most PIXEL_BLOCK pixels of dy is copied to packed[] (zeros beyond K), and all MT tiles read the copy.
//   x is read in place: row i of a tile reads the pixels of channel c_i, shifted by its tap, as MR broadcast scalars a
//   pixel. After a block acc is added to sums[] (private, 4*MT*MR*TN bytes). So sums stay short, and the results are
//   the same in each run. Nothing is multiplied where a tap leaves the image.
//
// Inputs (any strides, in elements; dy_c == 1 is the fast case, x_c == 1 reads whole cache lines):
//   x[n*x_n + h*x_h + w*x_w + c*x_c], dy[n*dy_n + oh*dy_h + ow*dy_w + k*dy_c], channels of all groups in one tensor
// Global size: (groups*ceil(K/TN), ceil(R*S*C / (MR*MT)), splits), local (1, 1, 1). The blocks of pixels are shared out
//   evenly among the splits.
// Epilogue macros: STORE(acc, k, c, r, s), STOREV(acc, k, c, r, s); store dimension k = split*groups*K + g*K + channel
//   in the group; c within the group. With splits > 1 the output has one weight gradient behind another, and an
//   ordinary reduction adds them in order.
// Macros of a launch: MR (rows of a register tile: MR pointers into x live in scalar registers), NV (vectors (of VW
//   floats) of k in a tile), MT (tiles of a work-item; their sums have 4*MT*MR*TN bytes; packing dy pays off with 8
//   tiles or more), WHOLE_VECTORS (1: K % VW == 0, no channel is stored alone).
#define TN (NV * VW)  // columns of a tile
#define PIXEL_BLOCK 224  // pixels of dy packed at a time; 4*PIXEL_BLOCK*TN bytes

// Returns ceil(a / b) for b > 0 and any a.
OCL_INLINE int ceil_div(const int a, const int b) {
  return a > 0 ? (a + b - 1) / b : -(-a / b);
}

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int panels = (K + TN - 1) / TN, group = get_global_id(0) / panels, k0 = get_global_id(0) % panels * TN,
            cols = min(TN, K - k0);
  const int J = R * S * C, j_first = get_global_id(1) * (MT * MR);
  const int pixels = batch * out_h * out_w;
  const int block_pixels = out_w <= PIXEL_BLOCK ? PIXEL_BLOCK / out_w * out_w : PIXEL_BLOCK;  // whole rows, if they fit
  const int blocks = (pixels + block_pixels - 1) / block_pixels, split = get_global_id(2), splits = get_global_size(2);
  const int block_begin = (long)blocks * split / splits, block_end = (long)blocks * (split + 1) / splits;
  x += x_offset + (long)group * C * x_c;
  dy += dy_offset + ((long)group * K + k0) * dy_c;
  float sums[MT * MR * TN], packed[PIXEL_BLOCK * TN];
  // A block consists of segments: image rows or parts of rows. For each segment: the input row, its offset in x, the
  // output columns [begin, end), and the position of column 0 in packed[].
  int segment_h[PIXEL_BLOCK], segment_begin[PIXEL_BLOCK], segment_end[PIXEL_BLOCK], segment_packed[PIXEL_BLOCK];
  long segment_x[PIXEL_BLOCK];
  for (int i = 0; i < MT * MR * TN; i += VW) VSTORE((VEC)(0.f), sums + i);

  for (int block = block_begin; block < block_end; ++block) {
    const int p0 = block * block_pixels, p1 = min(p0 + block_pixels, pixels);
    int segments = 0;
    for (int p = p0; p < p1; ++segments) {  // copies dy of the block to packed[], row by row
      const int row = p / out_w, ow = p % out_w, end = min(p1, p - ow + out_w);
      __global const IN_T* from = dy + row / out_h * dy_n + (long)(row % out_h) * dy_h + (long)ow * dy_w;
      float* to = packed + (p - p0) * TN;
      segment_h[segments] = row % out_h * stride_h - pad_h;
      segment_x[segments] = row / out_h * x_n + (long)segment_h[segments] * x_h;
      segment_begin[segments] = ow;
      segment_end[segments] = ow + end - p;
      segment_packed[segments] = (p - p0 - ow) * TN;
      if (dy_c == 1 && cols == TN) {
        for (; p < end; ++p, from += dy_w, to += TN) {
          OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(LOADV(from, v * VW), to + v * VW);
        }
      } else {
        for (; p < end; ++p, from += dy_w, to += TN)
          for (int k = 0; k < TN; ++k) to[k] = k < cols ? LOAD(from, (long)k * dy_c) : 0.f;
      }
    }
    for (int t = 0; t < MT; ++t) {
      const int j0 = j_first + t * MR;
      if (j0 >= J) break;
      VEC acc[MR][NV];
      __global const IN_T* from[MR];  // address that row i of the tile reads for output column 0, less segment_x
      int tap_h[MR], low[MR], high[MR];  // row i reads inside the image for output columns [low, high)
      int fast_begin = 0, fast_end = out_w, same_tap = 1;
      const int tap0 = j0 / C;
      OCL_UNROLL for (int i = 0; i < MR; ++i) {
        const int j = min(j0 + i, J - 1), tap = j / C, left = tap % S * dilation_w - pad_w;
        tap_h[i] = tap / S * dilation_h;  // does not decrease as i grows
        from[i] = x + ((long)(j % C) * x_c + (long)tap_h[i] * x_h + (long)left * x_w);
        low[i] = max(0, ceil_div(-left, stride_w));
        high[i] = min(out_w, ceil_div(in_w - left, stride_w));
        fast_begin = max(fast_begin, low[i]);
        fast_end = min(fast_end, high[i]);
        same_tap &= tap == tap0;
        OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
      }
      const int top = tap_h[0], bottom = tap_h[MR - 1];
      const long step = (long)stride_w * x_w;
      for (int segment = 0; segment < segments; ++segment) {
        const int ih = segment_h[segment], ow0 = segment_begin[segment], ow1 = segment_end[segment];
        if (ih + bottom < 0 || ih + top >= in_h) continue;  // the image row is outside for all taps of the tile
        const int all = ih + top >= 0 && ih + bottom < in_h;
        const int begin = all ? max(ow0, fast_begin) : ow1, stop = all ? max(begin, min(ow1, fast_end)) : ow1;
        const float* panel = packed + segment_packed[segment];
        long e = segment_x[segment] + begin * step;
        for (int ow = begin; ow < stop; ++ow, e += step) {
          VEC bv[NV];
          OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = VLOAD(panel + ow * TN + v * VW);
          OCL_UNROLL for (int i = 0; i < MR; ++i) {
            const VEC av = (VEC)(LOAD(from[i], e));
            OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
          }
        }
        if (same_tap) continue;  // the remaining columns are outside of the image for all rows of the tile
        for (int ow = ow0; ow < ow1; ++ow) {
          if (ow >= begin && ow < stop) continue;
          VEC bv[NV];
          OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = VLOAD(panel + ow * TN + v * VW);
          OCL_UNROLL for (int i = 0; i < MR;
                          ++i) if (ow >= low[i] && ow < high[i] && ih + tap_h[i] >= 0 && ih + tap_h[i] < in_h) {
            const VEC av = (VEC)(LOAD(from[i], segment_x[segment] + ow * step));
            OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
          }
        }
      }
      float* tile = sums + t * (MR * TN);
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
          VSTORE(acc[i][v] + VLOAD(tile + i * TN + v * VW), tile + i * TN + v * VW);
    }
  }
  for (int i = 0; i < min(MT * MR, J - j_first); ++i) {
    const int c = (j_first + i) % C, tap = (j_first + i) / C, k_out = (split * groups + group) * K + k0;
    int k = 0;
    for (; k + VW <= cols; k += VW) {
      const VEC value = VLOAD(sums + i * TN + k);
      STOREV(value, k_out + k, c, tap / S, tap % S);
    }
#if !WHOLE_VECTORS
    for (; k < cols; ++k) STORE(sums[i * TN + k], k_out + k, c, tap / S, tap % S);
#endif
  }
}
