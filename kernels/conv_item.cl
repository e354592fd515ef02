// kernels/conv_item.cl: 2-D convolution forward and its data gradient (= transposed convolution) as an implicit GEMM, groups included.
// y[n][k][oh][ow] = sum over c, r, s of x[n][c][oh*stride_h - pad_h + r*dil_h][ow*stride_w - pad_w + s*dil_w] * w[k][c][r][s], zero outside x.
// CPU family: one work-item = MT register tiles of MR pixels x TN = NV*VW output channels of one group.
//
//   pixel p    = (n, oh, ow) flattened      tap (r, s): the MR pixels of a tile are MR row pointers into x, each the start of a
//   tile       : MR consecutive pixels      contiguous run of `run` floats; the packed weights of the tap are run x TN.
//      k ->                                 acc[i][:] += x_row[i][j] * w[tap][j][:]      for j in run
//   p +------------------------+
//   | | acc[0][0] .. [NV-1]    |  x MT      A tile with a pixel whose run leaves the image copies its rows to gathered[] (zeros
//   v | ...      [MR-1]        |            outside), RUN_BLOCK floats at a time, and multiplies from there.
//     +------------------------+
// tap_block taps are summed in registers, then added to sums[] (private, 4*MT*MR*TN bytes): their weights (tap_block*run*TN*4 bytes) stay in
// cache while the MT tiles go by, and sums stay short. Good: the smallest with tap_block*run >= 512, and at most half of L2.
//
// RUN says what a run is (x is addressed as x[n*x_n + h*x_h + w*x_w + c*x_c], strides in elements):
//   0  channels of a pixel:      taps (r, s), run = C.      Needs x_c == 1.                       Weights [..][R][S][C][PANEL]
//   1  a filter row of pixels:   taps r,      run = S*C.    Needs x_c == 1, x_w == C (one group), dil_w == 1: NHWC with few channels
//                                                           Weights [..][R][S][C][PANEL] (as for 0)
//   2  a filter row of a channel: taps (r, c), run = S.     Needs x_w == 1, dil_w == 1: NCHW with few channels
//                                                           Weights [..][R][C][S][PANEL]
// DATA_GRADIENT 1: `x` is dy, C counts the channels of dy (per group), K those of dx, in_* is the size of dy, out_* of dx; the weights are packed with
//   c and k exchanged, not flipped. dx[n][k][h][w] = sum over c, r, s with (h + pad_h - r*dil_h) = stride_h*oh of dy[n][c][oh][ow] * w[c][k][r][s].
//   The pixels of a phase (h % stride_h, w % stride_w) share their taps: tiles hold pixels of one phase, and no zeros are multiplied. RUN must be 0.
//   With stride 1 it is the forward kernel on flipped weights with pad' = dil*(R-1) - pad, and both give the same result.
//
// Inputs: x as above, offset in elements;
//   w packed and padded with zeros, element (g, k, c, r, s) for RUN 0 and 1 at
//     ((((g*ceil(K/PANEL) + k/PANEL)*R + r)*S + s)*C + c)*PANEL + k % PANEL     (k, c within the group; RUN 2: ((.. *R + r)*C + c)*S + s)
// Arguments: x, x_offset, w, w_offset, int batch, C, in_h, in_w, K, out_h, out_w, groups, R, S, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w,
//   x_h, x_w, x_c, tap_block, long x_n, EPILOGUE_PARAMS.   C, K: channels of ONE group.
// Global size: (ceil(batch*ceil(out_h/ph)*ceil(out_w/pw) / (MR*MT)), groups*ceil(K/TN), ph*pw), local (1, 1, 1);
//   ph = pw = 1 forward; ph = stride_h, pw = stride_w for DATA_GRADIENT.
// Hooks: STORE(acc, n, k, h, w), STOREV(acc, n, k, h, w) with k = g*K + channel in the group; store dimension k.
#ifndef KERNEL_NAME
#define KERNEL_NAME conv_item
#endif
#ifndef MR
#define MR 6              // pixels of a register tile; MR*NV + NV + 1 <= number of vector registers (6x4 or 12x2 of 32; 4x2 of 16)
#endif
#ifndef NV
#define NV 4              // vectors (of VW floats) of output channels in a tile
#endif
#define TN (NV * VW)      // output channels of a tile
#ifndef PANEL
#define PANEL TN          // output channels of a panel of w; a multiple of TN
#endif
#ifndef MT
#define MT 4              // tiles (of MR pixels) a work-item
#endif
#ifndef RUN
#define RUN 0             // see above
#endif
#ifndef DATA_GRADIENT
#define DATA_GRADIENT 0   // see above
#endif
#ifndef RUN_BLOCK
#define RUN_BLOCK 128     // floats of a run gathered at a time at the border
#endif
#ifndef EPILOGUE_STAGED
#define EPILOGUE_STAGED 0 // 1: every tile goes through private memory to one call site of the hooks (long epilogues: less code)
#endif
#ifndef STORE             // alone: dense y[n][h][w][k], y_K = all channels
#define EPILOGUE_PARAMS , __global float* y, const ulong y_offset, const int y_H, const int y_W, const int y_K
#define EPILOGUE_PASS , y, y_offset, y_H, y_W, y_K
#define STORE(acc, n, k, h, w) (y[y_offset + (((ulong)(n) * y_H + (h)) * y_W + (w)) * y_K + (k)] = (acc))
#define STOREV(acc, n, k, h, w) VSTORE(acc, y + y_offset + (((ulong)(n) * y_H + (h)) * y_W + (w)) * y_K + (k))
#endif

// acc[i][v] += (row i)[j] * panel[j][v] for j < count; ROW(i, j) is a float
#define FMA_RUN(count, ROW)                                                                           \
  for (int j = 0; j < (count); ++j) {                                                                 \
    VEC bv[NV];                                                                                       \
    OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = LOADV(panel, (long)j * PANEL + v * VW);           \
    OCL_UNROLL for (int i = 0; i < MR; ++i) {                                                         \
      const VEC av = (VEC)(ROW(i, j));                                                                \
      OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);                  \
    }                                                                                                 \
  }
#define ROW_IN_PLACE(i, j) LOAD(row[i], j)
#define ROW_GATHERED(i, j) gathered[(i) * RUN_BLOCK + (j)]

// The same from gathered rows, with acc in memory. Not inlined: with both loops in one function Intel's compiler keeps no accumulator in a register
// (a third of the speed, in either loop).
OCL_NOINLINE void add_gathered_run(float* memory, const float* gathered, __global const IN_T* panel, const int count) {
  VEC acc[MR][NV];
  OCL_UNROLL for (int i = 0; i < MR; ++i)
    OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = VLOAD(memory + i * TN + v * VW);
  FMA_RUN(count, ROW_GATHERED)
  OCL_UNROLL for (int i = 0; i < MR; ++i)
    OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(acc[i][v], memory + i * TN + v * VW);
}

ONE_ITEM __kernel void KERNEL_NAME(
    __global const IN_T* restrict x, const ulong x_offset, __global const IN_T* restrict w, const ulong w_offset,
    const int batch, const int C, const int in_h, const int in_w, const int K, const int out_h, const int out_w, const int groups,
    const int R, const int S, const int stride_h, const int stride_w, const int pad_h, const int pad_w, const int dil_h, const int dil_w,
    const int x_h, const int x_w, const int x_c, const int tap_block, const long x_n EPILOGUE_PARAMS) {
  const int first = get_global_id(0) * (MT * MR);
  const int tiles_k = (K + TN - 1) / TN, group = get_global_id(1) / tiles_k, k0 = get_global_id(1) % tiles_k * TN;
#if DATA_GRADIENT
  const int phase_h = get_global_id(2) / stride_w, phase_w = get_global_id(2) % stride_w;
  const int rows_h = (out_h - phase_h + stride_h - 1) / stride_h, rows_w = (out_w - phase_w + stride_w - 1) / stride_w;  // pixels of this phase
#define OUT_H(q) ((q) * stride_h + phase_h)
#define OUT_W(q) ((q) * stride_w + phase_w)
#define IN_STEP_H 1
#define IN_STEP_W 1
#else
  const int rows_h = out_h, rows_w = out_w;
#define OUT_H(q) (q)
#define OUT_W(q) (q)
#define IN_STEP_H stride_h
#define IN_STEP_W stride_w
#endif
  const int pixels = rows_h > 0 && rows_w > 0 ? batch * rows_h * rows_w : 0;
#if RUN == 0
  const int taps = R * S, run = C;
#elif RUN == 1
  const int taps = R, run = S * C;
#else
  const int taps = R * C, run = S;
#endif
  x += x_offset + (long)group * C * x_c;
  w += w_offset + ((long)group * ((K + PANEL - 1) / PANEL) + k0 / PANEL) * (long)R * S * C * PANEL + k0 % PANEL;
  float sums[MT * MR * TN], gathered[MR * RUN_BLOCK], memory[MR * TN];

  for (int tap0 = 0; tap0 < taps; tap0 += tap_block) {
    const int tap1 = min(tap0 + tap_block, taps);
    for (int t = 0; t < MT; ++t) {
      const int m = first + t * MR;
      if (m >= pixels) break;
      VEC acc[MR][NV];
      int image[MR], qh[MR], qw[MR];  // output pixel: image, row and column (of the phase)
      OCL_UNROLL for (int i = 0; i < MR; ++i) {
        int p = min(m + i, pixels - 1);
        qw[i] = p % rows_w; p /= rows_w;
        qh[i] = p % rows_h; image[i] = p / rows_h;
        OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
      }
      for (int tap = tap0; tap < tap1; ++tap) {
#if DATA_GRADIENT
        const int above = phase_h + pad_h - tap / S * dil_h, left = phase_w + pad_w - tap % S * dil_w;
        if (above % stride_h != 0 || left % stride_w != 0) continue;  // this tap meets no pixel of the phase
        const int shift_h = above / stride_h, shift_w = left / stride_w;
#elif RUN == 0
        const int shift_h = tap / S * dil_h - pad_h, shift_w = tap % S * dil_w - pad_w;
#elif RUN == 1
        const int shift_h = tap * dil_h - pad_h, shift_w = -pad_w;
#else
        const int shift_h = tap / C * dil_h - pad_h, shift_w = -pad_w;
#endif
        __global const IN_T* row[MR];
        int low[MR], high[MR], inside = 1;  // part of the run that lies in the image, in floats
        OCL_UNROLL for (int i = 0; i < MR; ++i) {
          const int ih = qh[i] * IN_STEP_H + shift_h, iw = qw[i] * IN_STEP_W + shift_w, row_inside = ih >= 0 && ih < in_h;
#if RUN == 0
          low[i] = 0;
          high[i] = row_inside && iw >= 0 && iw < in_w ? run : 0;
          row[i] = x + image[i] * x_n + (long)ih * x_h + (long)iw * x_w;
#elif RUN == 1
          low[i] = clamp(-iw, 0, S) * C;
          high[i] = row_inside ? clamp(in_w - iw, 0, S) * C : 0;
          row[i] = x + image[i] * x_n + (long)ih * x_h + (long)iw * x_w;
#else
          low[i] = clamp(-iw, 0, S);
          high[i] = row_inside ? clamp(in_w - iw, 0, S) : 0;
          row[i] = x + image[i] * x_n + (long)ih * x_h + iw + (long)(tap % C) * x_c;
#endif
          inside &= low[i] == 0 && high[i] == run;
        }
        __global const IN_T* panel = w + (long)tap * run * PANEL;
        if (inside) {
          FMA_RUN(run, ROW_IN_PLACE)
        } else {
          OCL_UNROLL for (int i = 0; i < MR; ++i)
            OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(acc[i][v], memory + i * TN + v * VW);
          for (int j0 = 0; j0 < run; j0 += RUN_BLOCK) {
            const int jn = min(RUN_BLOCK, run - j0);
            OCL_UNROLL for (int i = 0; i < MR; ++i) {
              float* to = gathered + i * RUN_BLOCK;
#if RUN == 0
              if (high[i] == 0) { for (int j = 0; j < jn; j += VW) VSTORE((VEC)(0.f), to + j); }
              else {
                int j = 0;
                for (; j + VW <= jn; j += VW) VSTORE(LOADV(row[i], j0 + j), to + j);
                for (; j < jn; ++j) to[j] = LOAD(row[i], j0 + j);
              }
#else
              for (int j = 0; j < jn; ++j) to[j] = j0 + j >= low[i] && j0 + j < high[i] ? LOAD(row[i], j0 + j) : 0.f;
#endif
            }
            add_gathered_run(memory, gathered, panel, jn);
            panel += (long)jn * PANEL;
          }
          OCL_UNROLL for (int i = 0; i < MR; ++i)
            OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = VLOAD(memory + i * TN + v * VW);
        }
      }
      float* tile = sums + t * (MR * TN);
      if (tap0 > 0) {
        OCL_UNROLL for (int i = 0; i < MR; ++i)
          OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] += VLOAD(tile + i * TN + v * VW);
      }
      const int last = tap1 == taps, full = m + MR <= pixels && k0 + TN <= K && !EPILOGUE_STAGED;
      if (last && full) {
#if !EPILOGUE_STAGED
        OCL_UNROLL for (int i = 0; i < MR; ++i)
          OCL_UNROLL for (int v = 0; v < NV; ++v) STOREV(acc[i][v], image[i], group * K + k0 + v * VW, OUT_H(qh[i]), OUT_W(qw[i]));
#endif
      } else {  // to sums[], and from there to the hooks when these were the last taps: indices of acc stay constants
        OCL_UNROLL for (int i = 0; i < MR; ++i)
          OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(acc[i][v], tile + i * TN + v * VW);
        if (last) {
          const int width = min(TN, K - k0), rows = min(MR, pixels - m);
          for (int i = 0; i < rows; ++i) {
            int p = m + i;
            const int w_out = OUT_W(p % rows_w);
            p /= rows_w;
            const int h_out = OUT_H(p % rows_h), n = p / rows_h, k_out = group * K + k0;
            int k = 0;
            for (; k + VW <= width; k += VW) { const VEC value = VLOAD(tile + i * TN + k); STOREV(value, n, k_out + k, h_out, w_out); }
            for (; k < width; ++k) STORE(tile[i * TN + k], n, k_out + k, h_out, w_out);
          }
        }
      }
    }
  }
}
