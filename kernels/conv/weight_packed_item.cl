// kernels/conv/weight_packed_item.cl: weight gradient of a dense 2-D convolution with many channels. Item kernel.
// dw[k][c][r][s] = sum over n, oh, ow of x[n][c][oh*stride_h - pad_h + r*dilation_h][ow*stride_w - pad_w +
// s*dilation_w] * dy[n][k][oh][ow].
//
// A task is a split of the pixels, a tap (r, s), CB channels c and KB channels k. A work-item takes several tasks. For
// each task it goes through the split in blocks of PIXEL_BLOCK pixels:
//     x  --copy, shifted by the tap--> V[PIXEL_BLOCK][CB] --+
//     dy --copy----------------------> D[PIXEL_BLOCK][KB] --+--> U[KB][CB] += D' V --> stores
//                                      `-- scratch of a work-item, in L1 and L2 --'
// The pixels are copied because, in a tensor, the pixels of a narrow tile lie a power of two apart and compete for a
// few sets of the L1 cache. Rows of the copies are VW floats longer to avoid this. Products are computed in MR x TN
// register tiles, whose vectors run along c: in the usual layouts of dw, neighbours along c are closer than along k. The
// sum over a block is made in registers before it is added to U. So sums stay short, and the results are the same in
// each run.
//
// Inputs: x[n*x_n + h*x_h + w*x_w + c], dy[n*dy_n + h*dy_h + w*dy_w + k]; C % VW == 0, K % VW == 0, K % MR == 0;
//   zeros: C zeros; scratch: float, PIXEL_BLOCK*(CB + KB + 2*VW) + CB*KB elements for each work-item
// Global size: (items, 1, 1), local (1, 1, 1).
// Epilogue macros: STORE unused, STOREV(acc, k, c, r, s) along c; k = split*K + channel. With splits > 1 an
//   ordinary reduction adds the splits in order.
// Macros of a launch: MR (channels k of a register tile; MR*NV + NV + 1 <= number of vector registers), NV (vectors (of
//   VW floats) of c in a register tile), CB (channels c of a task, a multiple of TN), KB (channels k of a task, a
//   multiple of VW and MR), PIXEL_BLOCK (pixels of dy in a block).
#define LINE 16  // floats of a cache line
#define PIXELS_AHEAD 8  // the copy prefetches the pixel that it needs so many pixels later, about 200 ns
#define PITCH_C (CB + VW)
#define PITCH_K (KB + VW)

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int item = get_global_id(0), items = get_global_size(0);
  const int blocks_c = (C + CB - 1) / CB, blocks_k = (K + KB - 1) / KB, taps = R * S;
  const int pixels = batch * out_h * out_w, blocks = (pixels + PIXEL_BLOCK - 1) / PIXEL_BLOCK;
  __global float* V = scratch + scratch_offset + (size_t)item * (PIXEL_BLOCK * (PITCH_C + PITCH_K) + CB * KB);
  __global float* D = V + PIXEL_BLOCK * PITCH_C;
  __global float* U = D + PIXEL_BLOCK * PITCH_K;
  x += x_offset;
  dy += dy_offset;
  zeros += zeros_offset;
  const int works = splits * taps * blocks_c * blocks_k, work_end = (long)works * (item + 1) / items;
  for (int work = (long)works * item / items; work < work_end; ++work) {
    const int k_first = work % blocks_k * KB, c_first = work / blocks_k % blocks_c * CB,
              part = work / blocks_k / blocks_c;
    const int tap_r = part % taps / S, tap_s = part % taps % S, split = part / taps;
    const int cols_c = min(CB, C - c_first), cols_k = min(KB, K - k_first);
    const int block_begin = (long)blocks * split / splits, block_end = (long)blocks * (split + 1) / splits;
    if (block_begin == block_end) {  // a split without pixels
      for (int i = 0; i < CB * KB; i += VW) VSTORE((VEC)(0.f), U + i);
    }
    for (int block = block_begin; block < block_end; ++block) {
      const int first = block * PIXEL_BLOCK, count = min(PIXEL_BLOCK, pixels - first);
      int ow = first % out_w, oh = first / out_w % out_h, n = first / out_w / out_h;
      for (int t = 0; t < count; ++t) {
        const int ih = oh * stride_h - pad_h + tap_r * dilation_h, iw = ow * stride_w - pad_w + tap_s * dilation_w;
        __global const IN_T* from = x + (n * x_n + (long)ih * x_h + (long)iw * x_w + c_first);
        if (ih < 0 || ih >= in_h || iw < 0 || iw >= in_w) from = zeros;
        // beyond the last vector of columns it reads the last one again
        for (int c = 0; c < (cols_c + TN - 1) / TN * TN; c += VW) {
          if (c % LINE == 0) PREFETCH(from + PIXELS_AHEAD * (long)stride_w * x_w + c);
          VSTORE(LOADV(from, min(c, cols_c - VW)), V + t * PITCH_C + c);
        }
        from = dy + (n * dy_n + (long)oh * dy_h + (long)ow * dy_w + k_first);
        for (int k = 0; k < cols_k; k += VW) {
          if (k % LINE == 0) PREFETCH(from + PIXELS_AHEAD * (long)dy_w + k);
          VSTORE(LOADV(from, k), D + t * PITCH_K + k);
        }
        if (++ow == out_w) {
          ow = 0;
          if (++oh == out_h) {
            oh = 0;
            ++n;
          }
        }
      }
      // TN columns of V stay in the L1 cache, while the rows of D pass by.
      for (int c = 0; c < cols_c; c += TN)
        for (int k = 0; k < cols_k; k += MR)
          add_products(U + k * CB + c, D + k, PITCH_K, V + c, PITCH_C, count, block == block_begin);
    }
    for (int k = 0; k < cols_k; ++k)
      for (int c = 0; c < cols_c; c += VW) {
        const VEC value = VLOAD(U + k * CB + c);
        STOREV(value, split * K + k_first + k, c_first + c, tap_r, tap_s);
      }
  }
}
