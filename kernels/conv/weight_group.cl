// kernels/conv/weight_group.cl: gradient of a 2-D convolution with respect to its weight on GPUs. Both tensors are read
// in place.
//
//   dw[k,c,r,s] = sum over n,p,q of dy[n,k,p,q] * x[n, c, p*stride - pad + r*dilation, q*stride - pad + s*dilation]
//
// GEMM with M = filters k, N = (r, s, c) flattened with c fastest, depth = pixels (n, p, q) of dy. One work-group =
// TILE_M filters x TILE_N columns over the pixels of one split. The pipeline works as in gemm/group.cl. The tap and
// channel of a column never change, so a work-item only goes from pixel to pixel:
//
//                       TILE_N columns (r, s, c)
//                     +-----------------------+
//    x, shifted by    | pixel: c c c c | next |  TILE_K pixels per step, zeros outside the image. With X_VEC4 a
//    the column's tap +-----------------------+  work-item loads 4 channels of one tap.
//   +---------+       +-----------------------+
//   | dy^T    |       | dw                    |  TILE_M filters
//   +---------+       +-----------------------+
//
// Grid: global (ceil(R*S*C/TILE_N) * ceil(K/TILE_M) * GROUP_SIZE, groups, splits), local (GROUP_SIZE, 1, 1), splits =
//   ceil(batch*out_h*out_w / split_pixels).
// Epilogue macros: STORE(acc, split * filters + k, c, r, s), the sum of one split. k counts over all groups, `filters`
//   is their number, c is within the group. Store dimension c, VW = 4.
// Macros of a launch: TILE_M (filters per work-group), TILE_N (columns (r, s, c) per work-group), TILE_K (pixels of one
//   step, 8 or 16), SUM_STEPS (steps after which the running sum is added to the total; 0: one running sum), ITEM_M
//   (filters per work-item, 4 or 8), ITEM_N (columns per work-item, 4 or 8), DY_VEC4 (1: dy_c is 1; K and the other
//   strides of dy are multiples of 4), X_VEC4 (1: x_c is 1; C and the other strides of x are multiples of 4).
#define ACROSS (TILE_N / ITEM_N)
#define DOWN (TILE_M / ITEM_M)
#define GROUP_SIZE (ACROSS * DOWN)  // work-items, 64..256
#define DY_HELD (TILE_M * TILE_K / 4 / GROUP_SIZE)  // float4 of dy that a work-item loads in a step
#define X_HELD (TILE_N * TILE_K / 4 / GROUP_SIZE)
#define DY_LANES (DY_VEC4 ? TILE_M / 4 : TILE_M)  // work-items that load the same pixel of dy
#define X_LANES (X_VEC4 ? TILE_N / 4 : TILE_N)  // work-items that load the same pixel of x
#if TILE_M * TILE_K / 4 % GROUP_SIZE != 0 || TILE_N * TILE_K / 4 % GROUP_SIZE != 0
#error "the quads of a tile are not a multiple of the work-items"
#endif
#if GROUP_SIZE % TILE_M != 0 && !DY_VEC4 || GROUP_SIZE % TILE_N != 0 && !X_VEC4
#error "a tile that is read by single elements is at most as wide as the group has items"
#endif

// dy: [batch, groups * K, out_h, out_w] by strides; x: [batch, groups * C, in_h, in_w] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local float4 dy_tile[2][TILE_K * (TILE_M + TILE_PAD) / 4];
  __local float4 x_tile[2][TILE_K * (TILE_N + TILE_PAD) / 4];
  const int lane = get_local_id(0);
  const int2 item = tile_item(lane, ACROSS, DOWN);
  const int columns = FILTER_R * FILTER_S * C;
  const int n_tiles = (columns + TILE_N - 1) / TILE_N;
  const int m0 = (int)get_group_id(0) / n_tiles * TILE_M;  // neighbouring work-groups share filters of dy
  const int n0 = (int)get_group_id(0) % n_tiles * TILE_N;
  const int group = get_group_id(1), split = get_group_id(2);
  const int begin = split * split_pixels, end = min(batch * out_h * out_w, begin + split_pixels);

  // The filters of dy and the column of x that this work-item loads. A column out of range gets a tap that is outside
  // of the image for every pixel.
  const int dy_m = DY_VEC4 ? lane % DY_LANES * 4 : lane % DY_LANES;
  const int dy_inside = m0 + dy_m < K;
  const int x_column = n0 + (X_VEC4 ? lane % X_LANES * 4 : lane % X_LANES);
  const int c = x_column % C, tap = x_column / C;
  const int from_h = x_column < columns ? tap / FILTER_S * dilation_h - pad_h : -0x20000000;
  const int from_w = tap % FILTER_S * dilation_w - pad_w;
  dy += dy_offset + (long)(group * K + m0 + dy_m) * (DY_VEC4 ? 1 : dy_c);
  x += x_offset + (long)(group * C + c) * (X_VEC4 ? 1 : x_c);
  int dy_pixel = begin + lane / DY_LANES, x_pixel = begin + lane / X_LANES;
  Pixel dy_at = pixel_of(dy_pixel, out_h, out_w), x_at = pixel_of(x_pixel, out_h, out_w);
  const Pixel dy_by = pixel_of(GROUP_SIZE / DY_LANES, out_h, out_w),
              x_by = pixel_of(GROUP_SIZE / X_LANES, out_h, out_w);

  float4 acc[ITEM_M * ITEM_N / 4];
  OCL_UNROLL
  for (int i = 0; i < ITEM_M * ITEM_N / 4; ++i) acc[i] = (float4)(0.0f);
#if SUM_STEPS
  float4 total[ITEM_M * ITEM_N / 4];
  int summed = 0;
  OCL_UNROLL
  for (int i = 0; i < ITEM_M * ITEM_N / 4; ++i) total[i] = (float4)(0.0f);
#endif
  float4 dy_held[DY_HELD], x_held[X_HELD];

  int now = 0;
  // The first iteration only loads and stores step 0. Each later iteration loads the next step, multiplies the current
  // one, and stores the next one in local memory.
  for (int pixel = begin - TILE_K; pixel < end; pixel += TILE_K) {
    const int more = pixel + TILE_K < end;
    if (more) {
      OCL_UNROLL
      for (int i = 0; i < DY_HELD; ++i) {
        float part[4];
        OCL_UNROLL
        for (int j = 0; j < (DY_VEC4 ? 1 : 4); ++j) {
          const long at = dy_at.n * dy_n + dy_at.h * dy_h + dy_at.w * dy_w;
          const int inside = dy_inside && dy_pixel < end;
          if (DY_VEC4) {
            dy_held[i] = (float4)(0.0f);
            if (inside) dy_held[i] = load4(dy + at, ALIGNED(dy_offset));
          } else {
            part[j] = 0.0f;
            if (inside) part[j] = LOAD(dy, at);
          }
          dy_at = next_pixel(dy_at, dy_by, out_h, out_w);
          dy_pixel += GROUP_SIZE / DY_LANES;
        }
        if (!DY_VEC4) dy_held[i] = (float4)(part[0], part[1], part[2], part[3]);
      }
      OCL_UNROLL
      for (int i = 0; i < X_HELD; ++i) {
        float part[4];
        OCL_UNROLL
        for (int j = 0; j < (X_VEC4 ? 1 : 4); ++j) {
          const int h = x_at.h * stride_h + from_h, w = x_at.w * stride_w + from_w;
          const int inside = x_pixel < end && h >= 0 && h < in_h && w >= 0 && w < in_w;
          const long at = x_at.n * x_n + (h * x_h + w * x_w);
          if (X_VEC4) {
            x_held[i] = (float4)(0.0f);
            if (inside) x_held[i] = load4(x + at, ALIGNED(x_offset));
          } else {
            part[j] = 0.0f;
            if (inside) part[j] = LOAD(x, at);
          }
          x_at = next_pixel(x_at, x_by, out_h, out_w);
          x_pixel += GROUP_SIZE / X_LANES;
        }
        if (!X_VEC4) x_held[i] = (float4)(part[0], part[1], part[2], part[3]);
      }
    }
    if (pixel >= begin) {
      tile_multiply(acc, (__local const float*)dy_tile[now], (__local const float*)x_tile[now], item, ACROSS, DOWN,
                    TILE_K, ITEM_M, ITEM_N);
#if SUM_STEPS
      if (++summed % SUM_STEPS == 0) tile_flush(total, acc, ITEM_M * ITEM_N / 4);
#endif
      now ^= 1;
    }
    if (more) {
      tile_keep((__local float*)dy_tile[now], dy_held, lane, GROUP_SIZE, TILE_M, TILE_K, 0, DY_VEC4);
      tile_keep((__local float*)x_tile[now], x_held, lane, GROUP_SIZE, TILE_N, TILE_K, 0, X_VEC4);
    }
    // the next step is complete, and the current one's buffer is free, because all have read it
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const int first = (split * (int)get_global_size(1) + group) * K;  // store coordinate k of the group's filter 0
  OCL_UNROLL_ROWS
  for (int i = 0; i < ITEM_M; ++i) {
    const int k = m0 + (i / 4 * DOWN + item.y) * 4 + i % 4;
    OCL_UNROLL
    for (int j = 0; j < ITEM_N / 4; ++j) {
      const int column = n0 + (j * ACROSS + item.x) * 4;
      const float4 value = SUM_OF(ROW_NOW(i) * (ITEM_N / 4) + j);
      if (k < K) {
        if (C % 4 == 0) {
          const int at = column / C;
          if (column < columns) STOREV(value, first + k, column % C, at / FILTER_S, at % FILTER_S);
        } else {
          for (int l = 0; l < min(4, columns - column); ++l) {
            const int at = (column + l) / C;
            STORE(lane_of(value, l), first + k, (column + l) % C, at / FILTER_S, at % FILTER_S);
          }
        }
      }
    }
    tile_next_row(acc, ITEM_N / 4, ITEM_M * ITEM_N / 4);
#if SUM_STEPS
    tile_next_row(total, ITEM_N / 4, ITEM_M * ITEM_N / 4);
#endif
  }
}
