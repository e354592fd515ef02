// kernels/conv/image_item.cl: 2-D convolution forward of images with few channels, as in the first layer of a network.
// Item kernel. y[n][k][oh][ow] = sum over c, r, s of x[n][c][oh*stride_h - pad_h + r*dilation_h][ow*STRIDE_W - pad_w + s]
// * w[k][c][r][s], zero outside x.
//
// A strip is MT tiles of MR neighbouring pixels in a row of y. A work-item computes TN = NV*VW channels of several strips.
// First it copies what the strip reads of x, with zeros outside, to lines[], which stays in the L1 cache:
//
//   lines[r][c][]  a row of a plane (PLANES 1), of which a pixel of y reads RUN = S neighbours, or
//   lines[r][]     a row of pixels with all their channels (PLANES 0), RUN = S*C
//
// Then the products need no test, and one address: pixel i of a tile reads i*STEP floats behind pixel 0.
//   acc[i][:] += lines[line][i*STEP + j] * w[line][j][:] for each line and j in RUN
//
// Inputs: x[n*x_n + c*x_c + h*x_h + w*x_w]; PLANES 0 needs x_c == 1 and x_w == C;
//   w packed and padded with zeros: [k / TN][line][j][k % TN]
// Global size: (ceil(K/TN), ceil(strips/strips_per_item), 1), local (1, 1, 1); strips = batch*out_h*ceil(out_w/(MT*MR)).
// Epilogue macros, BIAS, LONG_STORES and WHOLE_VECTORS are those of conv/item.cl. STATISTICS 1: the slice is the second
//   number of the work-item.
// Macros of a launch: MR (pixels of a register tile), NV (vectors (of VW floats) of output channels in it;
//   MR*NV + NV + 1 <= number of vector registers), MT (tiles of a strip), C, R, S (channels of x, rows and columns of a
//   filter), STRIDE_W (pixels of x between pixels of a row of y), PLANES (see above).
#ifndef STATISTICS
#define STATISTICS 0
#endif
#define TN (NV * VW)
#define SLICES get_global_size(1)
#define LINES (PLANES ? R * C : R)
#define RUN (PLANES ? S : S * C)
#define PIXEL (PLANES ? 1 : C)  // floats of a pixel in a line
#define STEP (STRIDE_W * PIXEL)
#define LENGTH ((MT * MR - 1) * STEP + RUN)
#define LINE_BLOCK (RUN < 640 ? 640 / RUN : 1)  // lines that are summed in registers, so that sums stay short
#define PITCH (LENGTH + VW)  // zeros are stored as whole vectors

// Copies elements [begin, end) of a line, which are `step` apart in x, and stores zeros around them.
OCL_INLINE void copy_line(float* to, __global const IN_T* from, const int begin, const int end, const int step) {
  for (int j = 0; j < begin; ++j) to[j] = 0.f;
  if (step != 1) {
    for (int j = begin; j < end; ++j) to[j] = LOAD(from, (long)j * step);
  } else if (end - begin >= VW) {  // the last vector overlaps the one before
    for (int j = begin; j < end; j += VW) VSTORE(LOADV(from, min(j, end - VW)), to + min(j, end - VW));
  } else {
    for (int j = begin; j < end; ++j) to[j] = LOAD(from, j);
  }
  for (int j = end; j < LENGTH; j += VW) VSTORE((VEC)(0.f), to + j);
}

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int k0 = get_global_id(0) * TN, width = min(TN, K - k0);
  const int across = (out_w + MT * MR - 1) / (MT * MR), strips = batch * out_h * across;
  const int first = get_global_id(1) * strips_per_item, last = min(first + strips_per_item, strips);
  x += x_offset;
  w += w_offset + (long)k0 * (LINES * RUN);
#if BIAS
  float biases[TN];
  OCL_NO_UNROLL for (int k = 0; k < TN; ++k) biases[k] = k < width ? LOAD(bias, bias_offset + k0 + k) : 0.f;
#endif
#if STATISTICS
  VEC means[NV], m2s[NV];
  int count = 0;
  OCL_UNROLL for (int v = 0; v < NV; ++v) means[v] = m2s[v] = (VEC)(0.f);
#endif
  float lines[LINES * PITCH], tile[MR * TN];

  for (int strip = first; strip < last; ++strip) {
    const int w_first = strip % across * (MT * MR), h = strip / across % out_h, n = strip / across / out_h;
    const int left = (w_first * STRIDE_W - pad_w) * PIXEL,
              columns = in_w * PIXEL;  // element 0 of a line; of a row of x
    for (int line = 0; line < LINES; ++line) {
      const int r = PLANES ? line / C : line, c = PLANES ? line % C : 0, ih = h * stride_h - pad_h + r * dilation_h;
      const int begin = clamp(-left, 0, LENGTH),
                end = ih < 0 || ih >= in_h ? begin : clamp(columns - left, begin, LENGTH);
      const int step = PLANES ? x_w : 1;
      copy_line(lines + line * PITCH, x + (n * x_n + (long)ih * x_h + (long)c * x_c + (long)left * step), begin, end,
                step);
    }
    for (int t = 0; t < MT; ++t) {
      const int w0 = w_first + t * MR, rows = min(MR, out_w - w0);
      if (rows <= 0) break;
      VEC acc[MR][NV];
      for (int block = 0; block < LINES; block += LINE_BLOCK) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
        for (int line = block; line < min(block + LINE_BLOCK, LINES); ++line) {
          const float* row = lines + line * PITCH + t * (MR * STEP);
          __global const IN_T* panel = w + line * (RUN * TN);
          for (int j = 0; j < RUN; ++j) {
            VEC bv[NV];
            OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = LOADV(panel, j * TN + v * VW);
            OCL_UNROLL for (int i = 0; i < MR; ++i) {
              const VEC av = (VEC)(row[i * STEP + j]);
              OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
            }
          }
        }
        if (LINE_BLOCK >= LINES) break;
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) {
          if (block > 0) acc[i][v] += VLOAD(tile + i * TN + v * VW);
          VSTORE(acc[i][v], tile + i * TN + v * VW);
        }
      }
#if BIAS
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] +=
          VLOAD(biases + v * VW);
#endif
#if STATISTICS
      // Adds the pixels of the tile. Its means are relative to the first pixel, so that a large common value costs no
      // precision.
      const float all = count + rows;
      OCL_UNROLL for (int v = 0; v < NV; ++v) {
        VEC mean = (VEC)(0.f), m2 = (VEC)(0.f);
        OCL_UNROLL for (int i = 1; i < MR; ++i) if (i < rows) mean += acc[i][v] - acc[0][v];
        mean = acc[0][v] + mean / (VEC)(rows);
        OCL_UNROLL for (int i = 0; i < MR; ++i) if (i < rows) {
          const VEC d = acc[i][v] - mean;
          m2 = fma(d, d, m2);
        }
        const VEC apart = mean - means[v];
        means[v] = fma(apart, (VEC)(rows / all), means[v]);
        m2s[v] += fma(apart * (VEC)(count * (rows / all)), apart, m2);
      }
      count += rows;
#endif
#if !LONG_STORES
      if (rows == MR && width == TN) {
        OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
            STOREV(acc[i][v], n, k0 + v * VW, h, w0 + i);
        continue;
      }
#endif
      OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
          VSTORE(acc[i][v], tile + i * TN + v * VW);
      OCL_NO_UNROLL for (int i = 0; i < rows; ++i) {
        int k = 0;
        OCL_NO_UNROLL for (; k + VW <= width; k += VW) {
          const VEC value = VLOAD(tile + i * TN + k);
          STOREV(value, n, k0 + k, h, w0 + i);
        }
#if !WHOLE_VECTORS
        OCL_NO_UNROLL for (; k < width; ++k) STORE(tile[i * TN + k], n, k0 + k, h, w0 + i);
#endif
      }
    }
  }
#if STATISTICS
  STORE_STATISTICS(means, m2s, count, get_global_id(1), width, k0);
#endif
}
