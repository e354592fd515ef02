// kernels/depthwise/item.cl: 2-D depthwise convolution (one filter a channel), NHWC. Item kernel. DEPTHWISE_KIND says
// what it computes:
//   0 forward          y[n][c][oh][ow] = sum over r, s of
//                        x[n][c][oh*STRIDE_H - pad_h + r*DIL_H][ow*STRIDE_W - pad_w + s*DIL_W] * w[c][r][s]
//   1 data gradient    dx[n][c][h][w] = sum over r, s of dy[n][c][oh][ow] * w[c][r][s],
//                        over r, s with h + pad_h - r*DIL_H = STRIDE_H*oh, and the same for w
//   2 weight gradient  dw[c][r][s] = sum over n, oh, ow of
//                        x[n][c][oh*STRIDE_H - pad_h + r*DIL_H][ow*STRIDE_W - pad_w + s*DIL_W] * dy[n][c][oh][ow]
//
// Kinds 0 and 1: one work-item computes one row of outputs for `blocks_per_item` blocks of VW channels. The R*S weights
// of a block and PX outputs stay in registers. Each input column under the PX outputs is loaded once for a filter row:
//     columns  |0 1 2 3 4 5|      PX = 4, S = 3, stride 1: 6 vector loads for 12 multiply-adds
//     outputs   0 1 2 3
// With stride 2 in kind 1 an output uses only every second tap. The compiler knows which one after unrolling, because
// tiles start where w + pad_w is a multiple of STRIDE_W.
// Kind 2: one work-item sums all taps of one block of VW channels over its share of the rows (n, oh). The sums of a row
// are made in registers, then added to totals. If the last block has fewer than VW channels, it starts earlier and ends
// at C. It then computes some channels that the previous block also has, but stores only its own. C >= VW.
//
// Each kind prefetches what the next row adds to the rows that it reads. Otherwise a block of channels would wait for
// one cache line of each pixel: kernels took up to twice as long where the caches do not have the image.
//
// Inputs: x (kind 1: dy) is x[n*x_n + h*x_h + w*x_w + c]; w dense [R][S][C]; dy of kind 2 is dy[n*dy_n + h*dy_h +
// w*dy_w + c].
// Kinds 0 and 1: in_*: size of the tensor that is read, out_*: of the one written.
//   Global size: (batch*out_h, ceil(ceil(C/VW) / blocks_per_item), 1), local (1, 1, 1).
//   Epilogue macros: STORE(acc, n, c, h, w), STOREV(acc, n, c, h, w); store dimension c.
// Kind 2: in_*: size of x, out_*: of dy.
//   Global size: (ceil(C/VW), splits, 1), local (1, 1, 1). The batch*out_h rows are shared out evenly among the splits.
//   Epilogue macros: STORE(acc, split*C + c, 0, r, s), STOREV; store dimension: the first. With splits > 1 an ordinary
//   reduction adds the splits in order.
// Macros of a launch: DEPTHWISE_KIND (see above), R (filter rows), S (filter columns; up to R*S = 25 stay in
//   registers), STRIDE_H, STRIDE_W, DIL_H, DIL_W (stride and dilation in pixels).
#if STRIDE_W == 3
#define PX 3  // outputs at a time; kind 1: a multiple of STRIDE_W
#elif STRIDE_W <= 4
#define PX 4
#else
#define PX STRIDE_W
#endif

#if DEPTHWISE_KIND == 2

#define COLUMNS ((PX - 1) * STRIDE_W + (S - 1) * DIL_W + 1)  // input columns under PX outputs

// Prefetches pixel `w` of the next row of dy, and those pixels of x below it that the next row is the first to read.
#define PREFETCH_NEXT(w)                                                                            \
  do {                                                                                              \
    PREFETCH(gradient + dy_h + (long)(w) * dy_w);                                                   \
    OCL_UNROLL for (int r = 0; r < STRIDE_H; ++r) OCL_UNROLL for (int i = 0; i < STRIDE_W; ++i)     \
        PREFETCH(image + (long)((R - 1) * DIL_H + 1 + r) * x_h + (long)((w) * STRIDE_W + i) * x_w); \
  } while (0)

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int block = get_global_id(0) * VW, c = min(block, C - VW), rows = batch * out_h;
  const int row_begin = (long)rows * get_global_id(1) / get_global_size(1),
            row_end = (long)rows * (get_global_id(1) + 1) / get_global_size(1);
  float totals[R * S * VW];
  OCL_UNROLL for (int t = 0; t < R * S; ++t) VSTORE((VEC)(0.f), totals + t * VW);
  for (int row = row_begin; row < row_end; ++row) {
    const int n = row / out_h, oh = row % out_h, ih = oh * STRIDE_H - pad_h;
    __global const IN_T* image = x + x_offset + n * x_n + (long)ih * x_h + c;
    __global const IN_T* gradient = dy + dy_offset + n * dy_n + (long)oh * dy_h + c;
    VEC acc[R * S];
    OCL_UNROLL for (int t = 0; t < R * S; ++t) acc[t] = (VEC)(0.f);
    for (int ow = 0; ow < out_w;) {
      const int iw = ow * STRIDE_W - pad_w;
      if (ow + PX <= out_w && iw >= 0 && iw + COLUMNS <= in_w) {
        OCL_UNROLL for (int p = 0; p < PX; ++p) PREFETCH_NEXT(ow + p);
        VEC d[PX];
        OCL_UNROLL for (int p = 0; p < PX; ++p) d[p] = LOADV(gradient, (long)(ow + p) * dy_w);
        OCL_UNROLL for (int r = 0; r < R; ++r) if (ih + r * DIL_H >= 0 && ih + r * DIL_H < in_h) {
          VEC column[COLUMNS];
          OCL_UNROLL for (int i = 0; i < COLUMNS; ++i) column[i] =
              LOADV(image, (long)(r * DIL_H) * x_h + (long)(iw + i) * x_w);
          OCL_UNROLL for (int s = 0; s < S; ++s) OCL_UNROLL for (int p = 0; p < PX; ++p) acc[r * S + s] =
              fma(column[p * STRIDE_W + s * DIL_W], d[p], acc[r * S + s]);
        }
        ow += PX;
      } else {
        PREFETCH_NEXT(ow);
        const VEC d = LOADV(gradient, (long)ow * dy_w);
        OCL_UNROLL for (int r = 0; r < R; ++r) if (ih + r * DIL_H >= 0 && ih + r * DIL_H < in_h) {
          OCL_UNROLL for (int s = 0; s < S; ++s) if (iw + s * DIL_W >= 0 && iw + s * DIL_W < in_w) acc[r * S + s] =
              fma(LOADV(image, (long)(r * DIL_H) * x_h + (long)(iw + s * DIL_W) * x_w), d, acc[r * S + s]);
        }
        ow += 1;
      }
    }
    OCL_UNROLL for (int t = 0; t < R * S; ++t) VSTORE(acc[t] + VLOAD(totals + t * VW), totals + t * VW);
  }
  const int first = get_global_id(1) * C + c;
  for (int t = 0; t < R * S; ++t) {
    if (c == block) {
      const VEC value = VLOAD(totals + t * VW);
      STOREV(value, first, 0, t / S, t % S);
    } else {
      for (int l = block - c; l < VW; ++l) STORE(totals[t * VW + l], first + l, 0, t / S, t % S);
    }
  }
}

#else

#if DEPTHWISE_KIND == 0
#define FIRST_W 0  // output column at which the first tile of a row begins
#define FIRST_COLUMN(w) ((w) * STRIDE_W - pad_w)  // first input column of the tile at w
#define COLUMNS ((PX - 1) * STRIDE_W + (S - 1) * DIL_W + 1)
#define MEETS(p, s) 1  // 1 if output p of a tile uses tap s
#define COLUMN(p, s) ((p) * STRIDE_W + (s) * DIL_W)  // the column that tap s of output p reads
#define NEXT_ROW(oh) ((oh) * STRIDE_H - pad_h + (R - 1) * DIL_H + 1)  // first input row that row oh does not read
#define NEXT_ROWS STRIDE_H  // how many of them row oh + 1 reads
#define NEXT_COLUMN(w) ((w) * STRIDE_W)  // first of the columns that a tile prefetches
#define NEXT_COLUMNS (PX * STRIDE_W)
#else
#define BEFORE ((S - 1) * DIL_W / STRIDE_W)
#define FIRST_W (-(pad_w % STRIDE_W))
#define FIRST_COLUMN(w) (((w) + pad_w) / STRIDE_W - BEFORE)
#define COLUMNS ((PX - 1) / STRIDE_W + BEFORE + 1)
#define MEETS(p, s) (((p) - (s) * DIL_W) % STRIDE_W == 0)
#define COLUMN(p, s) (MEETS(p, s) ? ((p) - (s) * DIL_W) / STRIDE_W + BEFORE : 0)
#define NEXT_ROW(oh) (((oh) + pad_h) / STRIDE_H + 1)
#define NEXT_ROWS 1
#define NEXT_COLUMN(w) (((w) + pad_w) / STRIDE_W)
#define NEXT_COLUMNS (PX / STRIDE_W)
#endif

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int n = get_global_id(0) / out_h, oh = get_global_id(0) % out_h;
  for (int b = 0; b < blocks_per_item; ++b) {
    const int block = (get_global_id(1) * blocks_per_item + b) * VW, c = min(block, C - VW);
    if (block >= C) break;
    VEC filter[R * S];
    __global const IN_T* row[R];
    int row_inside[R];
    OCL_UNROLL for (int r = 0; r < R; ++r) {
#if DEPTHWISE_KIND == 0
      const int ih = oh * STRIDE_H - pad_h + r * DIL_H;
      row_inside[r] = ih >= 0 && ih < in_h;
#else
      const int above = oh + pad_h - r * DIL_H, ih = above / STRIDE_H;
      row_inside[r] = above >= 0 && above % STRIDE_H == 0 && ih < in_h;
#endif
      row[r] = x + x_offset + n * x_n + (long)ih * x_h + c;
      OCL_UNROLL for (int s = 0; s < S; ++s) filter[r * S + s] = LOADV(w, w_offset + (ulong)(r * S + s) * C + c);
    }
    __global const IN_T* next = x + x_offset + n * x_n + (long)NEXT_ROW(oh) * x_h + c;
    for (int ow = FIRST_W; ow < out_w; ow += PX) {
      OCL_UNROLL for (int r = 0; r < NEXT_ROWS; ++r) OCL_UNROLL for (int i = 0; i < NEXT_COLUMNS; ++i)
          PREFETCH(next + (long)r * x_h + (long)(NEXT_COLUMN(ow) + i) * x_w);
      const int iw = FIRST_COLUMN(ow);
      VEC acc[PX];
      OCL_UNROLL for (int p = 0; p < PX; ++p) acc[p] = (VEC)(0.f);
      if (iw >= 0 && iw + COLUMNS <= in_w) {
        OCL_UNROLL for (int r = 0; r < R; ++r) if (row_inside[r]) {
          VEC column[COLUMNS];
          OCL_UNROLL for (int i = 0; i < COLUMNS; ++i) column[i] = LOADV(row[r], (long)(iw + i) * x_w);
          OCL_UNROLL for (int s = 0; s < S; ++s) OCL_UNROLL for (int p = 0; p < PX; ++p) if (MEETS(p, s)) acc[p] =
              fma(column[COLUMN(p, s)], filter[r * S + s], acc[p]);
        }
      } else {
        OCL_UNROLL for (int r = 0; r < R; ++r) if (row_inside[r]) {
          VEC column[COLUMNS];
          OCL_UNROLL for (int i = 0; i < COLUMNS; ++i) column[i] =
              iw + i >= 0 && iw + i < in_w ? LOADV(row[r], (long)(iw + i) * x_w) : (VEC)(0.f);
          OCL_UNROLL for (int s = 0; s < S; ++s) OCL_UNROLL for (int p = 0; p < PX; ++p) if (MEETS(p, s)) acc[p] =
              fma(column[COLUMN(p, s)], filter[r * S + s], acc[p]);
        }
      }
      OCL_UNROLL for (int p = 0; p < PX; ++p) if (ow + p >= 0 && ow + p < out_w) {
        if (c == block)
          STOREV(acc[p], n, c, oh, ow + p);
        else {
          float lanes[VW];
          VSTORE(acc[p], lanes);
          for (int l = block - c; l < VW; ++l) STORE(lanes[l], n, c + l, oh, ow + p);
        }
      }
    }
  }
}
#endif
