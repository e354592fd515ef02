// kernels/depthwise/group.cl: depthwise 2-D convolution (one filter a channel) on GPUs: forward (OPERATION 0), gradient
// of the input (1), gradient of the weight (2).
//
//   0: y[n,k,h,w]  = sum over r,s of x[n, k, h*stride - pad + r*dilation, w*stride - pad + s*dilation] * W[k,r,s]
//   1: y = dx, x = dy: y[n,k,h,w] = sum over r,s of
//                        x[n, k, (h + pad - r*dilation)/stride, (w + pad - s*dilation)/stride] * W[k,r,s]
//                        where the quotients are whole numbers
//   2: dw[k,r,s] = sum over n,p,q of dy[n,k,p,q] * x[n, k, p*stride - pad + r*dilation, q*stride - pad + s*dilation]
//
// 0 and 1: a work-item computes a tile of TALL x STRIP neighbouring outputs of 4 channels. It reads each pixel of x under the
//   tile into registers once. Neighbouring work-items have neighbouring channels (NHWC), then neighbouring columns of tiles.
// 2: a work-group owns 64 channels (16 lanes x 4) and ROWS filter rows of a split. The 16 work-items of the same 4
//   channels take the strips of dy in turn. Each has ROWS x FILTER_S sums, which are added in a fixed order in local
//   memory.
//
//        x  . . . . . .      TALL 2, STRIP 4, stride 1, 3x3: 4 rows of 6 pixels of x, 9 weights -> 72 products
//           . . . . . .
//        y    o o o o
//             o o o o
//
// Operations 0 and 1: in_* are sizes of x, out_* of y. w packed [R][S][C].
//   Grid: global (ceil(ceil(C/4) * columns of tiles / 128) * 128, rows of tiles, batch), local (128, 1, 1). There are
//   ceil(out_w/STRIP) columns, ceil(out_h/TALL) rows.
//   Epilogue macros: STORE(acc, n, k, h, w). Store dimension k, VW = 4.
// Operation 2: in_* are sizes of x, out_* of dy. split_strips: strips of a split.
//   Grid: global (ceil(C/64) * 256, ceil(FILTER_R/ROWS), splits), local (256, 1, 1), splits = ceil(batch * out_h
//   * ceil(out_w/STRIP) / split_strips).
//   Epilogue macros: STORE(acc, split * C + k, 0, r, s), the sum of one split. Store dimension k, VW = 4.
// Strides are in elements. One image has less than 2^31 elements.
// Macros of a launch: OPERATION (0 forward, 1 gradient of the input, 2 gradient of the weight), FILTER_R, FILTER_S
//   (filter rows, filter columns), STRIDE_H, STRIDE_W, DILATION_H, DILATION_W (of the forward convolution), TALL, STRIP
//   (outputs of an item along h and w; for OPERATION 1 multiples of the strides; TALL is not used for 2), QUADS (1: channel
//   strides are 1; channels and all other strides are multiples of 4), WHOLE_TILES (1: no tile reaches beyond the output),
//   PHASE_H, PHASE_W (for OPERATION 1: pad_h % STRIDE_H, pad_w % STRIDE_W; otherwise not used).
//   CHANNELS, X_H, X_W: if defined, constants that replace the arguments C, x_h, x_w.
#ifndef CHANNELS
#define CHANNELS C
#endif
#ifndef X_H
#define X_H x_h
#endif
#ifndef X_W
#define X_W x_w
#endif
#ifndef ROWS
#if FILTER_R * FILTER_S <= 25
#define ROWS FILTER_R  // for OPERATION 2: filter rows of a work-group; ROWS * FILTER_S * 4 sums must fit into registers
#else
#define ROWS 1
#endif
#endif
#ifndef STORES_ALIGNED  // STOREA is STOREV for aligned vectors
#define STORES_ALIGNED 0
#define STOREA STOREV
#endif
#if OPERATION == 1 && (STRIP % STRIDE_W != 0 || TALL % STRIDE_H != 0)
#error "STRIP or TALL is not a multiple of the stride"
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

// The same for a pixel inside of the image, zeros for others. What is converted comes behind the condition (types.cl).
ALWAYS_INLINE float4 load_inside(const int inside, __global const IN_T* p, const long at, const int stride,
                                 const int left, const int aligned) {
  QUAD quad = (QUAD)(0);
  float4 v = (float4)(0.0f);
  if (inside && QUADS && aligned)
    quad = *(__global const QUAD*)(p + at);
  else if (inside)
    v = load_channels(p, at, stride, left, 0);
  return QUADS && aligned ? floats_of(quad) : v;
}

#if OPERATION < 2
// Output o of a tile uses tap t if MEETS is 1. It then reads row, or column, AT of the INPUTS rows or columns of x under the tile.
// LAST is the last one that it may read, and FIRST is where that of output 0 is in x.
#if OPERATION == 0
#define MEETS(o, t, dilation, stride, phase) 1
#define AT(o, t, taps, dilation, stride, phase) ((o) * (stride) + (t) * (dilation))
#define LAST(o, taps, dilation, stride, phase) AT(o, (taps) - 1, taps, dilation, stride, phase)
#define FIRST(begin, pad, taps, dilation, stride, phase) ((begin) * (stride) - (pad))
#else
#define BEFORE(taps, dilation, stride) (((taps) - 1) * (dilation) / (stride))
#define MEETS(o, t, dilation, stride, phase) (((o) + (phase) - (t) * (dilation)) % (stride) == 0)
#define AT(o, t, taps, dilation, stride, phase) \
  (((o) + (phase) - (t) * (dilation)) / (stride) + BEFORE(taps, dilation, stride))
#define LAST(o, taps, dilation, stride, phase) (((o) + (phase)) / (stride) + BEFORE(taps, dilation, stride))
#define FIRST(begin, pad, taps, dilation, stride, phase) (((begin) + (pad)) / (stride) - BEFORE(taps, dilation, stride))
#endif
#define INPUTS(outputs, taps, dilation, stride, phase) (LAST((outputs) - 1, taps, dilation, stride, phase) + 1)
#define IN_ROWS INPUTS(TALL, FILTER_R, DILATION_H, STRIDE_H, PHASE_H)
#define IN_COLUMNS INPUTS(STRIP, FILTER_S, DILATION_W, STRIDE_W, PHASE_W)
#define ARGUMENTS x, x_offset, w, w_offset, C, in_h, in_w, out_h, out_w, pad_h, pad_w, x_n, x_h, x_w, x_c

// x: [batch, C, in_h, in_w] by strides; w: [R][S][C]. aligned: as for load4.
ALWAYS_INLINE void compute_tile(KERNEL_PARAMETERS EPILOGUE_FUNCTION_PARAMS, const int aligned) {
  const int quads = (CHANNELS + 3) / 4, strips = (out_w + STRIP - 1) / STRIP;
  const int item = get_global_id(0), n = get_global_id(2);
  if (item >= quads * strips) return;
  const int k = item % quads * 4, left = CHANNELS - k;
  const int w0 = item / quads * STRIP, h0 = (int)get_global_id(1) * TALL;
  const int row0 = FIRST(h0, pad_h, FILTER_R, DILATION_H, STRIDE_H, PHASE_H);
  const int column0 = FIRST(w0, pad_w, FILTER_S, DILATION_W, STRIDE_W, PHASE_W);
  x += x_offset + n * x_n + (long)k * (QUADS ? 1 : x_c) + (row0 * X_H + column0 * X_W);
  w += w_offset + k;
  float4 acc[TALL][STRIP];
  OCL_UNROLL
  for (int t = 0; t < TALL; ++t) {
    OCL_UNROLL
    for (int i = 0; i < STRIP; ++i) acc[t][i] = (float4)(0.0f);
  }
  OCL_UNROLL
  for (int row = 0; row < IN_ROWS; ++row) {
    const int inside = (uint)(row0 + row) < (uint)in_h;
    // Where stores have conditions, compilers move sums behind these and keep all pixels in registers. A branch prevents it.
    if (!WHOLE_TILES && !inside) continue;
    float4 pixel[IN_COLUMNS];
    OCL_UNROLL
    for (int i = 0; i < IN_COLUMNS; ++i)
      pixel[i] = load_inside(inside && (uint)(column0 + i) < (uint)in_w, x, row * X_H + i * X_W, x_c, left, aligned);
    OCL_UNROLL
    for (int t = 0; t < TALL; ++t) {
      OCL_UNROLL
      for (int r = 0; r < FILTER_R; ++r) {
        if (MEETS(t, r, DILATION_H, STRIDE_H, PHASE_H) && AT(t, r, FILTER_R, DILATION_H, STRIDE_H, PHASE_H) == row) {
          OCL_UNROLL
          for (int s = 0; s < FILTER_S; ++s) {
            const float4 weight = load_channels(w, (r * FILTER_S + s) * CHANNELS, 1, left, aligned);
            OCL_UNROLL
            for (int i = 0; i < STRIP; ++i)
              if (MEETS(i, s, DILATION_W, STRIDE_W, PHASE_W))
                acc[t][i] = fma(pixel[AT(i, s, FILTER_S, DILATION_W, STRIDE_W, PHASE_W)], weight, acc[t][i]);
          }
        }
      }
    }
  }
  OCL_UNROLL
  for (int t = 0; t < TALL; ++t) {
    OCL_UNROLL
    for (int i = 0; i < STRIP; ++i) {
      if (WHOLE_TILES || (h0 + t < out_h && w0 + i < out_w)) {
        if (aligned)
          STOREA(acc[t][i], n, k, h0 + t, w0 + i);
        else if (left >= 4)
          STOREV(acc[t][i], n, k, h0 + t, w0 + i);
        else
          for (int l = 0; l < left; ++l) STORE(lane_of(acc[t][i], l), n, k + l, h0 + t, w0 + i);
      }
    }
  }
}

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  if (QUADS && STORES_ALIGNED && ALIGNED(x_offset) && ALIGNED(w_offset))
    compute_tile(ARGUMENTS EPILOGUE_PASS, 1);
  else
    compute_tile(ARGUMENTS EPILOGUE_PASS, 0);
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
    for (int i = 0; i < STRIP; ++i)
      gradient[i] =
          load_inside(q0 + i < out_w, dy, n * dy_n + (p * dy_h + (q0 + i) * dy_w), dy_c, left, ALIGNED(dy_offset));
    OCL_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const int in_row = p * STRIDE_H - pad_h + (r0 + r) * DILATION_H;
      if (in_row >= 0 && in_row < in_h) {
        float4 row[COLUMNS];
        OCL_UNROLL
        for (int i = 0; i < COLUMNS; ++i) {
          const int column = q0 * STRIDE_W - pad_w + i;
          row[i] = load_inside(column >= 0 && column < in_w, x, n * x_n + (in_row * x_h + column * x_w), x_c, left,
                               ALIGNED(x_offset));
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
