// kernels/conv_weight_wgmma.cl: gradient of a 2-D convolution with respect to its weight on the matrix unit, both tensors read in place.
//
// What is computed, the arguments and the splits over pixels are those of conv_weight_group.cl; the pipeline is that of wgmma.cl. GEMM with M = filters k
// (A = dy, filters contiguous), N = (r, s, c) flattened with c fastest (B = x; a quad is 4 channels of one tap, so C is a multiple of 4), depth = pixels
// of dy. A producer of x follows one pixel of each step over all its columns, whose taps never change.
//
// Arguments: dy, dy_offset, x, x_offset, int batch, C, K (per group), H, W (of x), P, Q (of dy), R, S, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
//   split_pixels (pixels a split, a multiple of TILE_K), long dy_n, int dy_h, dy_w, dy_c, long x_n, int x_h, x_w, x_c (channel strides are 1, C, K and the
//   other strides multiples of 4), epilogue.
// Grid: global (ceil(R*S*C/TILE_N) * ceil(K/TILE_M) * GROUP, groups, splits), local (GROUP, 1, 1).
// Hooks: STORE(acc, split * filters + k, c, r, s); k over all groups, c within the group. Store dimension c, VW = 2.
#ifndef KERNEL_NAME
#define KERNEL_NAME conv_weight_wgmma
#endif
#ifndef DY_DENSE
#define DY_DENSE 0  // 1: the pixels of dy lie dy_w apart, over rows and images
#endif
#ifndef STORE
#define EPILOGUE_PARAMS , __global float* y, const ulong y_offset  // [split * filters + k][r][s][c]
#define Y_AT(k, c, r, s) (y_offset + (((ulong)(k)*R + (r)) * S + (s)) * C + (c))
#define STORE(acc, k, c, r, s) (y[Y_AT(k, c, r, s)] = (acc))
#define STOREV(acc, k, c, r, s) vstore2(acc, 0, y + Y_AT(k, c, r, s))
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void KERNEL_NAME(__global const float* dy, const ulong dy_offset,  // [batch, groups * K, P, Q] by strides
                 __global const float* x, const ulong x_offset,    // [batch, groups * C, H, W] by strides
                 const int batch, const int C, const int K,
                 const int H, const int W, const int P, const int Q,
                 const int R, const int S,
                 const int stride_h, const int stride_w, const int pad_h, const int pad_w, const int dilation_h, const int dilation_w,
                 const int split_pixels,
                 const long dy_n, const int dy_h, const int dy_w, const int dy_c,
                 const long x_n, const int x_h, const int x_w, const int x_c
                 EPILOGUE_PARAMS) {
  PIPELINE(line);
  const int width = R * S * C, pixels = batch * P * Q, group = get_group_id(1), split = get_group_id(2);
  const int2 tile = tile_of_group((K + TILE_M - 1) / TILE_M, (width + TILE_N - 1) / TILE_N);
  const int m0 = tile.x * TILE_M, n0 = tile.y * TILE_N;
  const int first = split * split_pixels, last = min(pixels, first + split_pixels);
  const int steps = max(0, (last - first + TILE_K - 1) / TILE_K);

  if (get_local_id(0) >= CONSUMERS * 128) {
    const int p = get_local_id(0) - CONSUMERS * 128;
    const int a_quad = p % (TILE_M / 4), a_at = p / (TILE_M / 4), a_valid = K - m0 - a_quad * 4;
    const int b_first = n0 + (p >> 5) * (TILE_N / 4), b_at = p & 31;
    const int dy_aligned = ALIGNED(dy_offset), x_aligned = ALIGNED(x_offset);
    dy += dy_offset + (long)group * K + m0 + a_quad * 4;
    x += x_offset + (long)group * C;
    int shift[B_QUADS], tap[B_QUADS];  // of each quad of columns: offset in x; rows and columns further, 16 bits each
    OCL_UNROLL
    for (int i = 0; i < B_QUADS; ++i) {
      const int n = b_first + i * 4, s = n / C % S, r = n / C / S;
      shift[i] = r * dilation_h * x_h + s * dilation_w * x_w + n % C;
      tap[i] = n < width ? (r * dilation_h << 16) | (s * dilation_w) : 0x4000 << 16;
    }
    float4 held[B_QUADS];
    for (int step = 0; step <= steps; ++step) {
      if (step > 0) {
        __local float* stage = produce_begin(line, step - 1);
        OCL_UNROLL
        for (int i = 0; i < A_QUADS; ++i) {
          const int depth = a_at + i * (PRODUCERS / (TILE_M / 4)), pixel = first + (step - 1) * TILE_K + depth;
          const int valid = pixel < last ? a_valid : 0;
          const long from = DY_DENSE ? (long)pixel * dy_w : pixel / Q / P * dy_n + pixel / Q % P * (long)dy_h + pixel % Q * (long)dy_w;
          stage_quad(stage + column_quad(depth, a_quad), valid > 0 ? dy + from : x, 1, valid, dy_aligned);
        }
        OCL_UNROLL
        for (int i = 0; i < B_QUADS; ++i) keep_column_quad(stage + A_FLOATS, b_first - n0 + i * 4, b_at, held[i]);
        produce_end(line, step - 1);
      }
      if (step == steps) return;
      const int pixel = first + step * TILE_K + b_at;
      const int h = pixel < last ? pixel / Q % P * stride_h - pad_h : -0x8000, v = pixel % Q * stride_w - pad_w;
      __global const float* from = x + (min(pixel / Q / P, batch - 1) * x_n + h * (long)x_h + v * (long)x_w);
      OCL_UNROLL
      for (int i = 0; i < B_QUADS; ++i) {
        const int inside = (uint)(h + (tap[i] >> 16)) < (uint)H && (uint)(v + (tap[i] & 0xffff)) < (uint)W;
        held[i] = fetch_quad(from + shift[i], 1, inside ? 4 : 0, x_aligned);
      }
    }
    return;
  }

  float total[TILE_N / 2];
  consume(total, line, steps, 0);
  const int lane = get_local_id(0) & 31, m = m0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
  const int filters = split * (int)get_global_size(1) * K + group * K;
  OCL_UNROLL
  for (int j = 0; j < TILE_N / 8; ++j) {
    const int n = n0 + j * 8 + (lane & 3) * 2, c = n % C, s = n / C % S, r = n / C / S;
    if (n < width) {  // C is a multiple of 4: a pair never straddles taps
      if (m < K) STOREV((float2)(total[4 * j], total[4 * j + 1]), filters + m, c, r, s);
      if (m + 8 < K) STOREV((float2)(total[4 * j + 2], total[4 * j + 3]), filters + m + 8, c, r, s);
    }
  }
}
