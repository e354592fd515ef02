// kernels/depthwise/group.cl: depthwise 2-D convolution (one filter a channel) on GPUs: forward (OPERATION 0), gradient
// of the input (1), gradient of the weight (2).
//
//   0: y[n,k,h,w]  = sum over r,s of x[n, k, h*stride - pad + r*dilation, w*stride - pad + s*dilation] * W[k,r,s]
//   1: y = dx, x = dy: y[n,k,h,w] = sum over r,s of
//                        x[n, k, (h + pad - r*dilation)/stride, (w + pad - s*dilation)/stride] * W[k,r,s]
//                        where the quotients are whole numbers
//   2: dw[k,r,s] = sum over n,p,q of dy[n,k,p,q] * x[n, k, p*stride - pad + r*dilation, q*stride - pad + s*dilation]
//
// 0 and 1: a work-item computes a strip of STRIP neighbouring outputs of 4 channels. For each filter row it reads the
//   strip's columns of x into registers once. Neighbouring work-items have neighbouring channels (NHWC), then
//   neighbouring strips.
// 2: a work-group owns 64 channels (16 lanes x 4) and ROWS filter rows of a split. The 16 work-items of the same 4
//   channels take the strips of dy in turn. Each has ROWS x FILTER_S sums, which are added in a fixed order in local
//   memory.
//
//        x  . . . . . .      STRIP 4, stride 1, 3x3:  6 columns of x, 3 weights -> 12 products per row
//        y    o o o o
//
// Arguments of 0, 1: x, x_offset, w, w_offset, int C, in_h, in_w (of x), out_h, out_w (of y), pad_h, pad_w, long
//   x_n, int x_h, x_w, x_c, epilogue. w packed [R][S][C].
//   Grid: global (ceil(ceil(C/4) * strips / 128) * 128, out_h, batch), local (128, 1, 1). strips =
//   ceil(out_w/STRIP) for 0, ceil((out_w + pad_w % STRIDE_W)/STRIP) for 1.
//   Epilogue macros: STORE(acc, n, k, h, w). Store dimension k, VW = 4.
// Arguments of 2: dy, dy_offset, x, x_offset, int batch, C, in_h, in_w (of x), out_h, out_w (of dy), pad_h,
//   pad_w, split_strips (strips of a split), long dy_n, int dy_h, dy_w, dy_c, long x_n, int x_h, x_w, x_c, epilogue.
//   Grid: global (ceil(C/64) * 256, ceil(FILTER_R/ROWS), splits), local (256, 1, 1), splits = ceil(batch * out_h
//   * ceil(out_w/STRIP) / split_strips).
//   Epilogue macros: STORE(acc, split * C + k, 0, r, s), the sum of one split. Store dimension k, VW = 4.
// Strides are in elements. One image has less than 2^31 elements.
// Macros of a launch: OPERATION (0 forward, 1 gradient of the input, 2 gradient of the weight), FILTER_R, FILTER_S
//   (filter rows, filter columns), STRIDE_H, STRIDE_W, DILATION_H, DILATION_W (of the forward convolution), STRIP
//   (outputs of an item along w; for OPERATION 1 a multiple of STRIDE_W), QUADS (1: channel strides are 1; channels and
//   all other strides are multiples of 4).
#ifndef ROWS
#if FILTER_R * FILTER_S <= 25
#define ROWS FILTER_R  // for OPERATION 2: filter rows of a work-group; ROWS * FILTER_S * 4 sums must fit into registers
#else
#define ROWS 1
#endif
#endif
#ifndef STORE
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#if OPERATION == 2
// [r][s][split * C + k]
#define Y_AT(k, r, s) (y_offset + ((ulong)(r) * FILTER_S + (s)) * get_num_groups(2) * C + (k))
#define STORE(acc, k, c, r, s) (y[Y_AT(k, r, s)] = (acc))
#define STOREV(acc, k, c, r, s) vstore4(acc, 0, y + Y_AT(k, r, s))
#else
#define Y_AT(n, k, h, w) (y_offset + (((ulong)(n) * out_h + (h)) * out_w + (w)) * C + (k))  // NHWC
#define STORE(acc, n, k, h, w) (y[Y_AT(n, k, h, w)] = (acc))
#define STOREV(acc, n, k, h, w) vstore4(acc, 0, y + Y_AT(n, k, h, w))
#endif
#endif
#if OPERATION == 1 && STRIP % STRIDE_W != 0
#error "STRIP is not a multiple of STRIDE_W"
#endif

// Returns four channels of one pixel, which begin at p[at]; zeros for those beyond `left` channels. stride: distance of
// the channels in elements. aligned: as for load4.
OCL_INLINE float4 load_channels(__global const IN_T* p, const long at, const int stride, const int left,
                                const int aligned) {
  if (QUADS) return load4(p + at, aligned);
  float4 v = (float4)(0.0f);
  v.x = LOAD(p, at);
  if (left > 1) v.y = LOAD(p, at + stride);
  if (left > 2) v.z = LOAD(p, at + 2 * (long)stride);
  if (left > 3) v.w = LOAD(p, at + 3 * (long)stride);
  return v;
}

#if OPERATION < 2
// The columns of x that a strip reads, relative to the strip's column 0. For the gradient a strip begins at a w with (w
// + pad) % STRIDE_W == 0.
#if OPERATION == 0
#define FIRST_COLUMN 0
#define LAST_COLUMN ((STRIP - 1) * STRIDE_W + (FILTER_S - 1) * DILATION_W)
#else
#define FIRST_COLUMN (-((FILTER_S - 1) * DILATION_W / STRIDE_W))
#define LAST_COLUMN ((STRIP - 1) / STRIDE_W)
#endif
#define COLUMNS (LAST_COLUMN - FIRST_COLUMN + 1)

// x: [batch, C, in_h, in_w] by strides; w: [R][S][C]
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int quads = (C + 3) / 4;
  const int begin_w = OPERATION == 1 ? -(pad_w % STRIDE_W) : 0;  // column of the first strip
  const int strips = (out_w - begin_w + STRIP - 1) / STRIP;
  const int item = get_global_id(0), h = get_global_id(1), n = get_global_id(2);
  if (item >= quads * strips) return;
  const int k = item % quads * 4, w0 = item / quads * STRIP + begin_w;
  const int left = C - k;
  x += x_offset + n * x_n + (long)k * (QUADS ? 1 : x_c);
  w += w_offset + k;
  float4 acc[STRIP];
  OCL_UNROLL
  for (int i = 0; i < STRIP; ++i) acc[i] = (float4)(0.0f);
  OCL_UNROLL
  for (int r = 0; r < FILTER_R; ++r) {
#if OPERATION == 0
    const int in_row = h * STRIDE_H - pad_h + r * DILATION_H, in_column = w0 * STRIDE_W - pad_w;
    const int hit = in_row >= 0 && in_row < in_h;
#else
    const int over = h + pad_h - r * DILATION_H, in_row = over / STRIDE_H,
              in_column = (w0 + pad_w) / STRIDE_W + FIRST_COLUMN;
    const int hit = over >= 0 && over % STRIDE_H == 0 && in_row < in_h;
#endif
    if (hit) {
      float4 row[COLUMNS];
      OCL_UNROLL
      for (int i = 0; i < COLUMNS; ++i) {
        const int column = in_column + i;
        row[i] = (float4)(0.0f);
        if (column >= 0 && column < in_w)
          row[i] = load_channels(x, in_row * x_h + column * x_w, x_c, left, ALIGNED(x_offset));
      }
      OCL_UNROLL
      for (int s = 0; s < FILTER_S; ++s) {
        const float4 weight = load_channels(w, (long)(r * FILTER_S + s) * C, 1, left, ALIGNED(w_offset));
        OCL_UNROLL
        for (int i = 0; i < STRIP; ++i) {
#if OPERATION == 0
          acc[i] = fma(row[i * STRIDE_W + s * DILATION_W], weight, acc[i]);
#else
          // + FILTER_S * DILATION_W * STRIDE_W keeps the dividend positive for C's %
          if ((i - s * DILATION_W + FILTER_S * DILATION_W * STRIDE_W) % STRIDE_W == 0)
            acc[i] = fma(row[(i - s * DILATION_W - FIRST_COLUMN * STRIDE_W) / STRIDE_W], weight, acc[i]);
#endif
        }
      }
    }
  }
  OCL_UNROLL
  for (int i = 0; i < STRIP; ++i) {
    if (w0 + i >= 0 && w0 + i < out_w) {
      if (left >= 4)
        STOREV(acc[i], n, k, h, w0 + i);
      else
        for (int l = 0; l < left; ++l) STORE(lane_of(acc[i], l), n, k + l, h, w0 + i);
    }
  }
}

#else
#define LANES 16  // work-items along the channels
#define WALKERS 16  // work-items that share the strips of a split
#define COLUMNS ((STRIP - 1) * STRIDE_W + (FILTER_S - 1) * DILATION_W + 1)
#define TAPS_OF_WALKER ((ROWS * FILTER_S + WALKERS - 1) / WALKERS)

// dy: [batch, C, out_h, out_w] by strides; x: [batch, C, in_h, in_w] by strides
__kernel __attribute__((reqd_work_group_size(LANES * WALKERS, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local float4 partial[WALKERS][LANES];
  const int lane = (int)get_local_id(0) % LANES, walker = (int)get_local_id(0) / LANES;
  const int k = ((int)get_group_id(0) * LANES + lane) * 4, r0 = (int)get_group_id(1) * ROWS, split = get_group_id(2);
  const int left = C - k;
  const int strips = (out_w + STRIP - 1) / STRIP;
  const int end = min(batch * out_h * strips, (split + 1) * split_strips);
  dy += dy_offset + (long)k * (QUADS ? 1 : dy_c);
  x += x_offset + (long)k * (QUADS ? 1 : x_c);
  float4 acc[ROWS][FILTER_S];
  OCL_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    OCL_UNROLL
    for (int s = 0; s < FILTER_S; ++s) acc[r][s] = (float4)(0.0f);
  }
  for (int strip = split * split_strips + walker; strip < end && left > 0; strip += WALKERS) {
    const int q0 = strip % strips * STRIP, p = strip / strips % out_h, n = strip / strips / out_h;
    float4 gradient[STRIP];
    OCL_UNROLL
    for (int i = 0; i < STRIP; ++i) {
      gradient[i] = (float4)(0.0f);
      if (q0 + i < out_w)
        gradient[i] = load_channels(dy, n * dy_n + (p * dy_h + (q0 + i) * dy_w), dy_c, left, ALIGNED(dy_offset));
    }
    OCL_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const int in_row = p * STRIDE_H - pad_h + (r0 + r) * DILATION_H;
      if (in_row >= 0 && in_row < in_h) {
        float4 row[COLUMNS];
        OCL_UNROLL
        for (int i = 0; i < COLUMNS; ++i) {
          const int column = q0 * STRIDE_W - pad_w + i;
          row[i] = (float4)(0.0f);
          if (column >= 0 && column < in_w)
            row[i] = load_channels(x, n * x_n + (in_row * x_h + column * x_w), x_c, left, ALIGNED(x_offset));
        }
        OCL_UNROLL
        for (int s = 0; s < FILTER_S; ++s) {
          OCL_UNROLL
          for (int i = 0; i < STRIP; ++i) acc[r][s] = fma(row[i * STRIDE_W + s * DILATION_W], gradient[i], acc[r][s]);
        }
      }
    }
  }
  // Walker t adds up tap t, t + WALKERS, ... The loop has a short body, so that compilers unroll it and acc stays in registers.
  float4 sums[TAPS_OF_WALKER];
  OCL_UNROLL
  for (int tap = 0; tap < ROWS * FILTER_S; ++tap) {
    partial[walker][lane] = acc[tap / FILTER_S][tap % FILTER_S];
    barrier(CLK_LOCAL_MEM_FENCE);  // all work-items have stored their sums for this tap
    if (walker == tap % WALKERS) {
      float4 sum = partial[0][lane];
      OCL_NO_UNROLL
      for (int i = 1; i < WALKERS; ++i) sum += partial[i][lane];
      sums[tap / WALKERS] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // all have read partial[], so the next tap may overwrite it
  }
  OCL_UNROLL
  for (int i = 0; i < TAPS_OF_WALKER; ++i) {
    const int tap = i * WALKERS + walker, r = tap / FILTER_S, s = tap % FILTER_S;
    if (tap < ROWS * FILTER_S && left > 0 && r0 + r < FILTER_R) {
      if (left >= 4)
        STOREV(sums[i], split * C + k, 0, r0 + r, s);
      else
        for (int l = 0; l < left; ++l) STORE(lane_of(sums[i], l), split * C + k + l, 0, r0 + r, s);
    }
  }
}
#endif
