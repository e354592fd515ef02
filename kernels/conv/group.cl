// kernels/conv/group.cl: 2-D convolution on GPUs as an implicit GEMM, forward and (DATA_GRADIENT) gradient with respect
// to the input.
//
//   forward:        y[n,k,h,w] = sum over r,s,c of
//                     x[n, c, h*stride - pad + r*dilation, w*stride - pad + s*dilation] * W[k,c,r,s]
//   DATA_GRADIENT:  y[n,k,h,w] = sum over r,s,c of
//                     x[n, c, (h + pad - r*dilation)/stride, (w + pad - s*dilation)/stride] * W[c,k,r,s]
//                     where the quotients are whole numbers
//
// x is what the kernel reads, y what it writes, c the channels that are summed over, k the channels of the result, per
// group. For the gradient x is dy, y is dx, and c counts the filters. GEMM with M = pixels of y, N = k, depth = (r, s,
// c). One work-group = TILE_M pixels x TILE_N channels. The pipeline works as in gemm/group.cl.
//
//   x (NHWC)          Row m of the A tile is pixel m, shifted by the tap (r, s): TILE_K consecutive channels of one
//   +---------+       pixel of x, or zeros outside. Taps r, s are the outer loops, channel blocks the inner one. A step
//   |  .r,s   |       has one tap (FLAT: steps run over the flattened (r, s, c)).
//   |    m    |       Gradient with stride: the pixels of y fall into stride_h * stride_w phases (h % stride_h, w %
//   |         |       stride_w). All pixels of a phase use the same taps. One grid dimension runs over the phases. So
//   +---------+       no zeros are multiplied, and every pixel has one owner.
//
// The channel stride of x is 1 (x_c is not read) unless FLAT. w packed [R][S][C][groups * K]: forward from weight
//   [groups*K, C, R, S] by permute(2, 3, 1, 0); gradient from weight [groups*C, K, R, S] by view(groups, C, K, R,
//   S).permute(3, 4, 1, 0, 2), without groups by permute(2, 3, 0, 1).
// Grid: global (ceil(pixels/TILE_M) * ceil(K/TILE_N) * GROUP_SIZE, groups, phases), local (GROUP_SIZE, 1, 1).
//   forward: pixels = batch * out_h * out_w, phases = 1. Gradient: pixels = batch * ceil(out_h/stride_h) *
//   ceil(out_w/stride_w), phases = stride_h * stride_w.
// Epilogue macros: STORE(acc, n, k, h, w), k over all groups. Store dimension k, VW = 4.
// Macros of a launch: DATA_GRADIENT (1: gradient with respect to the input), TILE_M (pixels per work-group), TILE_N
//   (produced channels per work-group), TILE_K (depth of one step, 8 or 16), SUM_STEPS (steps after which the running
//   sum is added to the total; 0: one running sum), ITEM_M (pixels per work-item, 4 or 8), ITEM_N (channels per
//   work-item, 4 or 8), FLAT (1: steps over the flattened (r, s, c), any channel stride: for few channels (stem), C <
//   16), X_VEC4 (1: C and all strides of x are multiples of 4 (not with FLAT)), W_VEC4 (1: K is a multiple of 4).
// FILTER_R, FILTER_S, FILTER_C: if defined, constants that replace the arguments R, S, C: FLAT then divides by
// constants.
#ifndef FILTER_C
#define FILTER_C C
#endif
#define ACROSS (TILE_N / ITEM_N)
#define DOWN (TILE_M / ITEM_M)
#define GROUP_SIZE (ACROSS * DOWN)  // work-items, 64..256
#define X_HELD (TILE_M * TILE_K / 4 / GROUP_SIZE)  // float4 of x that a work-item loads in a step
#define W_HELD ((TILE_N * TILE_K / 4 + GROUP_SIZE - 1) / GROUP_SIZE)
#if TILE_M * TILE_K / 4 % GROUP_SIZE != 0
#error "the quads of the pixel tile are not a multiple of the work-items"
#endif
#if FLAT && GROUP_SIZE % TILE_M != 0
#error "FLAT needs at least one work-item per pixel of the tile"
#endif
#define PIXELS (FLAT ? 1 : X_HELD)  // different pixels that a work-item loads
#define OUTSIDE (-0x20000000)  // a coordinate that no tap brings back into the image

// x: [batch, groups * C, in_h, in_w] by strides; w: [R][S][C][groups * K]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local float4 x_tile[2][TILE_K * (TILE_M + TILE_PAD) / 4];
  __local float4 w_tile[2][TILE_K * (TILE_N + TILE_PAD) / 4];
  const int lane = get_local_id(0);
  const int2 item = tile_item(lane, ACROSS, DOWN);
  const int k_tiles = (K + TILE_N - 1) / TILE_N;
  const int m0 = (int)get_group_id(0) / k_tiles * TILE_M;  // neighbouring work-groups share pixels of x
  const int k0 = (int)get_group_id(0) % k_tiles * TILE_N;
  const int group = get_group_id(1);
  const int w_row = get_global_size(1) * K;  // elements from one (r, s, c) to the next
#if DATA_GRADIENT
  const int step_h = stride_h, step_w = stride_w;
  const int phase_h = (int)get_group_id(2) / stride_w, phase_w = (int)get_group_id(2) % stride_w;
#else
  const int step_h = 1, step_w = 1, phase_h = 0, phase_w = 0;
#endif
  const int rows = (out_h + step_h - 1) / step_h, columns = (out_w + step_w - 1) / step_w;
  const int pixels = batch * rows * columns;

  // For each pixel for which this work-item loads x: the place in x that a tap with shift 0 reads.
  __global const IN_T* from[PIXELS];
  int from_h[PIXELS], from_w[PIXELS];
  const int quad = FLAT ? 0 : lane % (TILE_K / 4) * 4;  // first channel of a step that this work-item loads
  OCL_UNROLL
  for (int i = 0; i < PIXELS; ++i) {
    const int m = m0 + (FLAT ? lane % TILE_M : (lane + i * GROUP_SIZE) / (TILE_K / 4));
    const Pixel p = pixel_of(m, rows, columns);
    from_h[i] = m < pixels ? DATA_GRADIENT ? p.h : p.h * stride_h - pad_h : OUTSIDE;
    from_w[i] = DATA_GRADIENT ? p.w : p.w * stride_w - pad_w;
    from[i] = x + (x_offset + min(p.n, batch - 1) * x_n + (long)group * FILTER_C * (FLAT ? x_c : 1) + quad);
  }
  w += w_offset + (long)group * K + k0;

  float4 acc[ITEM_M * ITEM_N / 4];
  OCL_UNROLL
  for (int i = 0; i < ITEM_M * ITEM_N / 4; ++i) acc[i] = (float4)(0.0f);
#if SUM_STEPS
  float4 total[ITEM_M * ITEM_N / 4];
  int summed = 0;
  OCL_UNROLL
  for (int i = 0; i < ITEM_M * ITEM_N / 4; ++i) total[i] = (float4)(0.0f);
#endif
  float4 x_held[X_HELD], w_held[W_HELD];

// The work-item, for loads and stores of a step. Compilers compute what depends on it alone before the loop, such as thirty
// addresses, and hold it. For threads with few registers it depends on the step: adds the sign of an index, which is zero.
#if FIXED_THREADS && FLAT
#define STEP_LANE (lane + ((step_at + w_row) >> 31))
#elif FIXED_THREADS
#define STEP_LANE (lane + (((r * FILTER_S + s) * FILTER_C + c) >> 31))
#else
#define STEP_LANE lane
#endif

#if FLAT
  // step_at: index of the step's first (r, s, c), flattened
  const int depth = FILTER_R * FILTER_S * FILTER_C;
  int step_at = 0;
#define MORE_STEPS (step_at < depth)
#define NEXT_STEP step_at += TILE_K;
#define FETCH_STEP                                                                                                    \
  {                                                                                                                   \
    OCL_UNROLL                                                                                                        \
    for (int i = 0; i < X_HELD; ++i) {                                                                                \
      float part[4];                                                                                                  \
      OCL_UNROLL                                                                                                      \
      for (int j = 0; j < 4; ++j) {                                                                                   \
        const int at = step_at + STEP_LANE / TILE_M + (i * 4 + j) * (GROUP_SIZE / TILE_M);                            \
        const int c = at % FILTER_C, tap = at / FILTER_C, r = tap / FILTER_S, s = tap % FILTER_S;                     \
        part[j] = 0.0f;                                                                                               \
        int h, w_;                                                                                                    \
        int hit = at < depth;                                                                                         \
        if (DATA_GRADIENT) {                                                                                          \
          const int over_h = phase_h + pad_h - r * dilation_h, over_w = phase_w + pad_w - s * dilation_w;             \
          h = from_h[0] + over_h / stride_h;                                                                          \
          w_ = from_w[0] + over_w / stride_w;                                                                         \
          hit = hit && over_h % stride_h == 0 && over_w % stride_w == 0;                                              \
        } else {                                                                                                      \
          h = from_h[0] + r * dilation_h;                                                                             \
          w_ = from_w[0] + s * dilation_w;                                                                            \
        }                                                                                                             \
        if (hit && h >= 0 && h < in_h && w_ >= 0 && w_ < in_w) part[j] = LOAD(from[0], h * x_h + w_ * x_w + c * x_c); \
      }                                                                                                               \
      x_held[i] = (float4)(part[0], part[1], part[2], part[3]);                                                       \
    }                                                                                                                 \
    tile_fetch(w_held, w + (long)step_at * w_row, 1, w_row, K - k0, depth - step_at, STEP_LANE, GROUP_SIZE, TILE_N,   \
               TILE_K, 0, W_VEC4, ALIGNED(w_offset));                                                                 \
  }
#else
  // The current step has tap (r, s) and the channels from c on. The whole work-group skips taps that no pixel of the
  // phase uses.
  int r = 0, s = 0, c = 0, shift_h, shift_w;
#define TAP_USED     \
  (!DATA_GRADIENT || \
   ((phase_h + pad_h - r * dilation_h) % stride_h == 0 && (phase_w + pad_w - s * dilation_w) % stride_w == 0))
#define MORE_STEPS (r < FILTER_R)
#define NEXT_TAP           \
  {                        \
    c = 0;                 \
    if (++s == FILTER_S) { \
      s = 0;               \
      ++r;                 \
    }                      \
  }
// Computes the shift of the current tap: the distance in x from what shift 0 reads. It needs divisions, so it is
// computed only for a new tap.
#define SHIFT                                                                                 \
  {                                                                                           \
    while (MORE_STEPS && !TAP_USED) NEXT_TAP                                                  \
    shift_h = DATA_GRADIENT ? (phase_h + pad_h - r * dilation_h) / stride_h : r * dilation_h; \
    shift_w = DATA_GRADIENT ? (phase_w + pad_w - s * dilation_w) / stride_w : s * dilation_w; \
  }
#define NEXT_STEP        \
  {                      \
    c += TILE_K;         \
    if (c >= FILTER_C) { \
      NEXT_TAP           \
      SHIFT              \
    }                    \
  }
#define FETCH_STEP                                                                                            \
  {                                                                                                           \
    OCL_UNROLL                                                                                                \
    for (int i = 0; i < X_HELD; ++i) {                                                                        \
      const int h = from_h[i] + shift_h, w_ = from_w[i] + shift_w, at = h * x_h + w_ * x_w + c;               \
      x_held[i] = (float4)(0.0f);                                                                             \
      if (h >= 0 && h < in_h && w_ >= 0 && w_ < in_w && c + quad < FILTER_C) {                                \
        if (X_VEC4)                                                                                           \
          x_held[i] = load4(from[i] + at, ALIGNED(x_offset));                                                 \
        else {                                                                                                \
          x_held[i].x = LOAD(from[i], at);                                                                    \
          if (c + quad + 1 < FILTER_C) x_held[i].y = LOAD(from[i], at + 1);                                   \
          if (c + quad + 2 < FILTER_C) x_held[i].z = LOAD(from[i], at + 2);                                   \
          if (c + quad + 3 < FILTER_C) x_held[i].w = LOAD(from[i], at + 3);                                   \
        }                                                                                                     \
      }                                                                                                       \
    }                                                                                                         \
    tile_fetch(w_held, w + ((r * FILTER_S + s) * FILTER_C + c) * (long)w_row, 1, w_row, K - k0, FILTER_C - c, \
               STEP_LANE, GROUP_SIZE, TILE_N, TILE_K, 0, W_VEC4, ALIGNED(w_offset));                          \
  }
  SHIFT
#endif
#define KEEP_STEP(now)                                                                                   \
  {                                                                                                      \
    tile_keep((__local float*)x_tile[now], x_held, STEP_LANE, GROUP_SIZE, TILE_M, TILE_K, !FLAT, !FLAT); \
    tile_keep((__local float*)w_tile[now], w_held, STEP_LANE, GROUP_SIZE, TILE_N, TILE_K, 0, W_VEC4);    \
  }

  int more = MORE_STEPS, now = 0;  // `more` is the same for the whole work-group
  if (more) {
    FETCH_STEP
    KEEP_STEP(0)
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // the first step of both operands is in buffer 0
  while (more) {
    NEXT_STEP
    more = MORE_STEPS;
    if (more) FETCH_STEP
    tile_multiply(acc, (__local const float*)x_tile[now], (__local const float*)w_tile[now], item, ACROSS, DOWN, TILE_K,
                  ITEM_M, ITEM_N);
#if SUM_STEPS
    if (++summed % SUM_STEPS == 0) tile_flush(total, acc, ITEM_M * ITEM_N / 4);
#endif
    now ^= 1;
    if (more) KEEP_STEP(now)
    // the next step is complete, and the current one's buffer is free, because all have read it
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  OCL_UNROLL_ROWS
  for (int i = 0; i < ITEM_M; ++i) {
    const int m = m0 + (i / 4 * DOWN + item.y) * 4 + i % 4;
    const Pixel p = pixel_of(m, rows, columns);
    const int h = p.h * step_h + phase_h, w_ = p.w * step_w + phase_w;
    OCL_UNROLL
    for (int j = 0; j < ITEM_N / 4; ++j) {
      const int k = k0 + (j * ACROSS + item.x) * 4;
      const float4 value = SUM_OF(ROW_NOW(i) * (ITEM_N / 4) + j);
      if (m < pixels && h < out_h && w_ < out_w) {
        if (k + 3 < K)
          STOREV(value, p.n, group * K + k, h, w_);
        else
          for (int l = 0; l < K - k; ++l) STORE(lane_of(value, l), p.n, group * K + k + l, h, w_);
      }
    }
    tile_next_row(acc, ITEM_N / 4, ITEM_M * ITEM_N / 4);
#if SUM_STEPS
    tile_next_row(total, ITEM_N / 4, ITEM_M * ITEM_N / 4);
#endif
  }
}
