// kernels/conv/item.cl: 2-D convolution forward, and its data gradient (= transposed convolution), as an implicit GEMM,
// groups included. Item kernel: one work-item = MT x PANELS register tiles of MR pixels x TN = NV*VW output channels of one
// group. y[n][k][oh][ow] = sum over c, r, s of x[n][c][oh*stride_h - pad_h + r*dilation_h][ow*stride_w - pad_w +
// s*dilation_w] * w[k][c][r][s], zero outside x.
//
//      k ->
//   p +------------------------+       p = (n, oh, ow) flattened. A tile has MR consecutive pixels.
//   | | acc[0][0] .. [NV-1]    |  x MT
//   v | ...      [MR-1]        |
//     +------------------------+       acc[i][:] += row[i][j] * w[tap][j][:] for j in C
//
// For a tap (r, s) the MR pixels of a tile are MR row pointers. Each points to the C channels of a pixel of x, or to zeros[]
// where the tap leaves the image. The packed weights of a tap are C x TN. Every tap_block taps are summed in registers, then
// added to sums[] (private, 4*MT*MR*TN bytes). So the weights of these taps (tap_block*C*TN*4 bytes) stay in cache while all
// MT tiles use them, and sums stay short. Good values: tap_block*C near 512, its weights at most half of L2.
//
// DATA_GRADIENT 1: `x` is dy, C counts the channels of dy (per group), K those of dx, in_* is the size of dy, out_*
//   that of dx. The weights are packed with c and k exchanged, not flipped. dx[n][k][h][w] = sum over c, r, s with (h +
//   pad_h - r*dilation_h) = stride_h*oh of dy[n][c][oh][ow] * w[c][k][r][s].
//   The pixels of a phase (h % stride_h, w % stride_w) share their taps. A tile has pixels of one phase, so no zeros
//   are multiplied. With stride 1, the forward kernel with flipped weights and pad' = dil*(R-1) - pad
//   gives the same result.
//
// Inputs: x as above, offset in elements;
//   w packed and padded with zeros, element (g, k, c, r, s) at ((((g*ceil(K/PANEL) + k/PANEL)*R + r)*S + s)*C +
//     c)*PANEL + k % PANEL (k, c within the group);
//     with PAIRS 1, channels c and c + 1 of an output channel are neighbours: ... *C/2 + c/2)*PANEL + k % PANEL)*2 + c % 2;
//   zeros: C zeros.
// Global size: (ceil(batch*ceil(out_h/ph)*ceil(out_w/pw) / (MR*MT)), groups*ceil(K/(TN*PANELS)), ph*pw), local (1, 1, 1);
//   ph = pw = 1 forward; ph = stride_h, pw = stride_w for DATA_GRADIENT. With CHANNELS_FIRST 1 the first two sizes are
//   exchanged, so that all channels of a pixel are written one after the other. Good if w stays in the L2 cache.
// Epilogue macros: STORE(acc, n, k, h, w), STOREV(acc, n, k, h, w) with k = g*K + channel in the group; store dimension
//   k. If PREFETCHV(n, k, h, w) or PREFETCHV_LOADED is defined, a tile prefetches what its epilogue touches, before it multiplies.
//   STATISTICS 1 (forward only): a work-item also stores the statistics of its pixels for each channel, by
//   STORE1(value, which, slice, k) and STORE1V along k: mean (which 0), m2 (1, the sum of squared distances from the
//   mean) and count (2). The slice is PIXELS_ID.
//   BIAS 1: bias[k], k over all groups, is added to each sum.
//   With LONG_STORES, each macro has one call site, in a loop: building MR*NV copies of a long epilogue took seconds.
// Macros of a launch: MR (pixels of a register tile; MR*NV + NV + 1 <= number of vector registers (6x4 or 12x2 of 32;
//   4x2 of 16)), NV (vectors (of VW floats) of output channels in a tile), MT (tiles (of MR pixels) per work-item),
//   PANELS (tiles with the same pixels, one after the other, so that their pixels are found once; above 1 only if R = S = 1,
//   for a data gradient only with stride 1. Good if the weights of all these tiles stay in the L1 cache),
//   PAIRS (1: bf16 is multiplied by the instruction for pairs of base/pairs.cl; C is even), WHOLE_VECTORS (1: K % VW
//   == 0, so every store is a whole vector), BIAS, DATA_GRADIENT and CHANNELS_FIRST (see above), LONG_STORES (1: the epilogue macros are long, so each has one call site).
#ifndef STATISTICS
#define STATISTICS 0
#endif
#define TN (NV * VW)  // output channels of a tile
#define PANEL TN  // output channels of a panel of w; a multiple of TN
#define LINE 16  // floats of a cache line
#define FLOATS_AHEAD 4096  // a tile prefetches what is read after about so many floats
#define PIXELS_ID get_global_id(CHANNELS_FIRST)
#define PANEL_ID get_global_id(1 - CHANNELS_FIRST)
#define SLICES get_global_size(CHANNELS_FIRST)
#if DATA_GRADIENT
#define ABOVE(tap) (phase_h + pad_h - (tap) / S * dilation_h)
#define LEFT(tap) (phase_w + pad_w - (tap) % S * dilation_w)
#define MEETS(tap) (ABOVE(tap) % stride_h == 0 && LEFT(tap) % stride_w == 0)  // 1 if pixels of the phase use the tap
#define SHIFT_H(tap) (ABOVE(tap) / stride_h)
#define SHIFT_W(tap) (LEFT(tap) / stride_w)
#else
#define MEETS(tap) 1
#define SHIFT_H(tap) ((tap) / S * dilation_h - pad_h)
#define SHIFT_W(tap) ((tap) % S * dilation_w - pad_w)
#endif
// Sets row[] to the pixels of x that a tap multiplies.
#define FIND_ROWS(tap)                                                              \
  do {                                                                              \
    const int shift_h = SHIFT_H(tap), shift_w = SHIFT_W(tap);                       \
    OCL_UNROLL for (int i = 0; i < MR; ++i) {                                       \
      const int ih = qh[i] * IN_STEP_H + shift_h, iw = qw[i] * IN_STEP_W + shift_w; \
      row[i] = x + (image[i] * x_n + (long)ih * x_h + (long)iw * x_w);              \
      if (ih < 0 || ih >= in_h || iw < 0 || iw >= in_w) row[i] = zeros;             \
    }                                                                               \
  } while (0)
#if PANELS == 1 && defined(PREFETCHV)
#define PREFETCH_TILE PREFETCHV
#elif defined(PREFETCHV_LOADED)  // the rows that are written are long, so the processor foresees them
#define PREFETCH_TILE PREFETCHV_LOADED
#endif

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int first = PIXELS_ID * (MT * MR);
  const int tiles_k = (K + TN * PANELS - 1) / (TN * PANELS), group = PANEL_ID / tiles_k;
  const int first_k = PANEL_ID % tiles_k * (TN * PANELS);
#if DATA_GRADIENT
  const int phase_h = get_global_id(2) / stride_w, phase_w = get_global_id(2) % stride_w;
  // rows and columns of this phase's pixels
  const int rows_h = (out_h - phase_h + stride_h - 1) / stride_h, rows_w = (out_w - phase_w + stride_w - 1) / stride_w;
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
  const int taps = R * S;
  x += x_offset + (long)group * C * x_c;
  w += w_offset + ((long)group * ((K + PANEL - 1) / PANEL) + first_k / PANEL) * (long)R * S * C * PANEL +
       first_k % PANEL;
  zeros += zeros_offset;
#if BIAS
  float biases[PANELS * TN];
  OCL_NO_UNROLL for (int k = 0; k < PANELS * TN; ++k) biases[k] =
      k < K - first_k ? LOAD(bias, bias_offset + group * K + first_k + k) : 0.f;
#endif
  float sums[(STATISTICS ? PANELS : 1) * MT * MR * TN];

  for (int tap0 = 0; tap0 < taps; tap0 += tap_block) {
    const int tap1 = min(tap0 + tap_block, taps);
    // image, row and column (within the phase) of the next pixel
    int n_at = first / (rows_h * rows_w), h_at = first / rows_w % rows_h, w_at = first % rows_w;
    for (int t = 0; t < MT; ++t) {
      const int m = first + t * MR;
      if (m >= pixels) break;
      const int rows = min(MR, pixels - m);
      int image[MR], qh[MR], qw[MR];  // of the tile's pixels; beyond the last pixel it is repeated
      OCL_UNROLL for (int i = 0; i < MR; ++i) {
        image[i] = n_at;
        qh[i] = h_at;
        qw[i] = w_at;
        w_at += i + 1 < rows || i + 1 == MR;
        const int next_row = w_at == rows_w;
        w_at = next_row ? 0 : w_at;
        h_at += next_row;
        const int next_image = h_at == rows_h;
        h_at = next_image ? 0 : h_at;
        n_at += next_image;
      }
      __global const IN_T* row[MR];
#if PANELS > 1
      FIND_ROWS(0);
#endif
      OCL_NO_UNROLL for (int p = 0; p < PANELS; ++p) {
        const int k0 = first_k + p * TN;
        if (k0 >= K) break;
#ifdef PREFETCH_TILE
        if (tap1 == taps) {
          OCL_NO_UNROLL for (int i = 0; i < rows; ++i) OCL_UNROLL for (int k = 0; k < TN; k += max(VW, LINE))
              PREFETCH_TILE(image[i], group * K + k0 + k, OUT_H(qh[i]), OUT_W(qw[i]));
        }
#endif
        if (taps == 1 && k0 == 0) {  // a product of pixels, which reads each of them once
          const int tiles = max(1, FLOATS_AHEAD / (MR * C)), ahead = qw[0] + tiles * MR;
          __global const IN_T* later =
              x + (image[0] * x_n + (long)(qh[0] * IN_STEP_H) * x_h + (long)(ahead * IN_STEP_W) * x_w);
          for (int i = 0; i < MR; ++i)
            for (int c = 0; c < C; c += LINE) PREFETCH(later + (long)(i * IN_STEP_W) * x_w + c);
        }
        VEC acc[MR][NV];
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
        for (int tap = tap0; tap < tap1; ++tap) {
#if PANELS == 1
          if (!MEETS(tap)) continue;  // no pixel of the phase uses this tap
          FIND_ROWS(tap);
#endif
          __global const IN_T* panel = w + (p * (long)taps + tap) * C * PANEL;
#if PAIRS
          for (int j = 0; j < C; j += 2) {
            uint16 bv[NV];
            OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = WORDS_AT(panel + (long)j * PANEL + v * 32);
            OCL_UNROLL for (int i = 0; i < MR; ++i) {
              const uint16 av = (uint16)(WORD_AT(row[i] + j));
              OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = add_products(acc[i][v], av, bv[v]);
            }
          }
#else
          for (int j = 0; j < C; ++j) {
            VEC bv[NV];
            OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = LOADV(panel, (long)j * PANEL + v * VW);
            OCL_UNROLL for (int i = 0; i < MR; ++i) {
              const VEC av = (VEC)(LOAD(row[i], j));
              OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
            }
          }
#endif
        }
        float* tile = sums + (STATISTICS || tap_block < taps ? (p * MT + t) * (MR * TN) : 0);
        if (tap0 > 0) {
          OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] +=
              VLOAD(tile + i * TN + v * VW);
        }
#if BIAS
        if (tap1 == taps) {
          OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] +=
              VLOAD(biases + p * TN + v * VW);
        }
#endif
        const int width = min(TN, K - k0), k_out = group * K + k0;
#if !LONG_STORES && !STATISTICS
        if (tap1 == taps && rows == MR && width == TN) {
          OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
              STOREV(acc[i][v], image[i], k_out + v * VW, OUT_H(qh[i]), OUT_W(qw[i]));
          continue;
        }
#endif
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
            VSTORE(acc[i][v], tile + i * TN + v * VW);
        if (tap1 < taps) continue;
        OCL_NO_UNROLL for (int i = 0; i < rows; ++i) {
          int k = 0;
          OCL_NO_UNROLL for (; k + VW <= width; k += VW) {
            const VEC value = VLOAD(tile + i * TN + k);
            STOREV(value, image[i], k_out + k, OUT_H(qh[i]), OUT_W(qw[i]));
          }
#if !WHOLE_VECTORS
          OCL_NO_UNROLL for (; k < width; ++k) STORE(tile[i * TN + k], image[i], k_out + k, OUT_H(qh[i]), OUT_W(qw[i]));
#endif
        }
      }
    }
  }
#if STATISTICS
  const int rows = min(MT * MR, pixels - first);
  OCL_NO_UNROLL for (int p = 0; p < PANELS; ++p) {
    const int k0 = first_k + p * TN, width = min(TN, K - k0);
    if (width <= 0) break;
    const float* of_panel = sums + p * (MT * MR * TN);
    VEC mean[NV], m2[NV];
    OCL_UNROLL for (int v = 0; v < NV; ++v) mean[v] = m2[v] = (VEC)(0.f);
    for (int i = 1; i < rows; ++i)  // relative to the first pixel, so that a large common value costs no precision
      OCL_UNROLL for (int v = 0; v < NV; ++v) mean[v] += VLOAD(of_panel + i * TN + v * VW) - VLOAD(of_panel + v * VW);
    OCL_UNROLL for (int v = 0; v < NV; ++v) mean[v] = VLOAD(of_panel + v * VW) + mean[v] / (VEC)(rows);
    for (int i = 0; i < rows; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) {
        const VEC d = VLOAD(of_panel + i * TN + v * VW) - mean[v];
        m2[v] = fma(d, d, m2[v]);
      }
    STORE_STATISTICS(mean, m2, rows, PIXELS_ID, width, group * K + k0);
  }
#endif
}
