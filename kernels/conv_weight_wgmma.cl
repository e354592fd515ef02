// kernels/conv_weight_wgmma.cl: gradient of a 2-D convolution with respect to its weight on the matrix unit, both tensors read in place.
//
// What is computed, the arguments and the splits over pixels are those of conv_weight_group.cl; the pipeline is that of wgmma.cl. GEMM with M = filters k
// (A = dy, filters contiguous), N = (r, s, c) flattened with c fastest (B = x; a quad is 4 channels of one tap, so C is a multiple of 4), depth = pixels
// of dy. A producer of x keeps its columns, so their tap, and walks over the pixels.
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
#define OUTSIDE (-0x10000)  // a coordinate that no pixel brings back into the image
#ifndef STORED_C
#define STORED_C C  // channels that are stored: less than C where x is padded to quads of channels
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
  const int2 tile = tile_at(get_group_id(0), (K + TILE_M - 1) / TILE_M, (width + TILE_N - 1) / TILE_N);
  const int m0 = tile.x * TILE_M, n0 = tile.y * TILE_N;
  const int first = split * split_pixels, last = min(pixels, first + split_pixels);
  const int steps = max(0, (last - first + TILE_K - 1) / TILE_K);

  if (get_local_id(0) >= CONSUMERS * 128) {
    const int p = get_local_id(0) - CONSUMERS * 128;
    const int a_quad = p % (TILE_M / 4), a_at = p / (TILE_M / 4), a_valid = K - m0 - a_quad * 4;
    const int dy_aligned = ALIGNED(dy_offset), x_aligned = ALIGNED(x_offset);
    dy += dy_offset + (long)group * K + m0 + a_quad * 4;
    x += x_offset + (long)group * C;
    // The columns of x that this item brings, a tap and 4 channels a block, and the first of the 4 pixels that it brings at a step.
    int low_h[B_BLOCKS], low_w[B_BLOCKS], from[B_BLOCKS];
    OCL_UNROLL
    for (int i = 0; i < B_BLOCKS; ++i) {
      const int column = n0 + column_of(p, i), s = column / C % S, r = column / C / S;
      low_h[i] = column < width ? r * dilation_h - pad_h : OUTSIDE;
      low_w[i] = s * dilation_w - pad_w;
      from[i] = column % C;
    }
    int at = first + depth_of(p), q = at % Q, row_p = at / Q % P, n = at / Q / P;
    // x is fetched two steps ahead: the latency of memory is longer than a step.
    float4 even[B_QUADS], odd[B_QUADS];
#define FETCH(held)                                                                                                            \
  {                                                                                                                            \
    OCL_UNROLL                                                                                                                 \
    for (int j = 0; j < 4; ++j) {                                                                                              \
      OCL_UNROLL                                                                                                               \
      for (int i = 0; i < B_BLOCKS; ++i) {                                                                                     \
        const int h = row_p * stride_h + low_h[i], v = q * stride_w + low_w[i];                                                \
        const int inside = at < last && (uint)h < (uint)H && (uint)v < (uint)W;                                                \
        held[4 * i + j] = fetch_quad(x + (n * x_n + h * (long)x_h + v * (long)x_w + from[i]), 1, inside ? 4 : 0, x_aligned);   \
      }                                                                                                                        \
      const int by = j < 3 ? 1 : TILE_K - 3;                                                                                   \
      at += by;                                                                                                                \
      q += by;                                                                                                                 \
      while (q >= Q) {                                                                                                         \
        q -= Q;                                                                                                                \
        if (++row_p == P) row_p = 0, ++n;                                                                                      \
      }                                                                                                                        \
    }                                                                                                                          \
  }
#define PUT(held, step)                                                                                        \
  {                                                                                                            \
    __local float* stage = produce_begin(line, step);                                                          \
    OCL_UNROLL                                                                                                 \
    for (int i = 0; i < A_QUADS; ++i) {                                                                        \
      const int depth = a_at + i * (PRODUCERS / (TILE_M / 4)), pixel = first + (step) * TILE_K + depth;        \
      const int valid = pixel < last ? a_valid : 0;                                                            \
      const long from = DY_DENSE ? (long)pixel * dy_w                                                          \
                                 : pixel / Q / P * dy_n + pixel / Q % P * (long)dy_h + pixel % Q * (long)dy_w; \
      stage_quad(stage + column_quad(depth, a_quad), valid > 0 ? dy + from : x, 1, valid, dy_aligned);         \
    }                                                                                                          \
    OCL_UNROLL                                                                                                 \
    for (int i = 0; i < B_BLOCKS; ++i) keep_block(stage + A_FLOATS, p, i, held + 4 * i);                       \
    produce_end(line, step);                                                                                   \
  }
    for (int step = 0; step < steps + 2; step += 2) {
      if (step >= 2) PUT(even, step - 2)
      if (step < steps) FETCH(even)
      if (step >= 2 && step - 1 < steps) PUT(odd, step - 1)
      if (step + 1 < steps) FETCH(odd)
    }
    return;
  }

  float total[TILE_N / 2];
  consume(total, line, 0, steps, 0);
  const int lane = get_local_id(0) & 31, m = m0 + (get_local_id(0) >> 5) * 16 + (lane >> 2);
  const int filters = split * (int)get_global_size(1) * K + group * K;
  OCL_UNROLL
  for (int j = 0; j < TILE_N / 8; ++j) {
    const int n = n0 + j * 8 + (lane & 3) * 2, c = n % C, s = n / C % S, r = n / C / S;
    if (n < width) {  // C is a multiple of 4: a pair never straddles taps
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * j + 2 * i, k = filters + m + 8 * i;
        if (m + 8 * i < K && c + 1 < STORED_C) STOREV((float2)(total[at], total[at + 1]), k, c, r, s);
        else if (m + 8 * i < K && c < STORED_C) STORE(total[at], k, c, r, s);
      }
    }
  }
}
