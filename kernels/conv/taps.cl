// kernels/conv/taps.cl: steps through the depth of a convolution on tensor cores, as an implicit GEMM, and the macros of
// such kernels. The depth consists of the taps that are used, and of the channels of each tap.
// Macros of a launch: DATA_GRADIENT (1: gradient with respect to the input). OUT_H, OUT_W: if defined, constants that replace
// the arguments out_h and out_w, since the coordinates of each pixel are quotients.
#ifndef OUT_H
#define OUT_H out_h
#define OUT_W out_w
#endif
#ifndef STORE1  // without generated epilogue macros: the statistics follow the last element of y
#define STORE1(value, which, slice, k) STORE(value, batch, k, 0, (which) * slices + (slice))
#endif
#if B_PACKED
#define FILTER_T float
#else
#define FILTER_T OPERAND_T
#endif
#define OUTSIDE (-0x4000)  // a coordinate that stays outside the image for every tap

// The taps that the pixels of a phase (conv/group.cl) use along one dimension: first, first + increment, ... below the
// filter's size, `count` in all. Used tap t reads the input pixel at offset `shift - t * pixel_step`.
typedef struct {
  int first, increment, count, shift, pixel_step;
} Taps;

// size: the filter's size along the dimension. phase: the pixels' coordinate in y modulo the stride.
ALWAYS_INLINE Taps taps_of(const int size, const int phase, const int pad, const int stride, const int dilation) {
  Taps taps = {0, 1, size, 0, -dilation};
  if (DATA_GRADIENT) {
    while (taps.first < size && (phase + pad - taps.first * dilation) % stride != 0) ++taps.first;
    while (taps.first + taps.increment < size && taps.increment * dilation % stride != 0) ++taps.increment;
    taps.count = (size - taps.first + taps.increment - 1) / taps.increment;
    taps.shift = (phase + pad - taps.first * dilation) / stride;
    taps.pixel_step = taps.increment * dilation / stride;
  }
  return taps;
}

// A position in the depth: channel c of used tap (r, s).
typedef struct {
  int c, r, s;
} TapPosition;

// Returns the position `channels` channels behind `at`. C: channels of a tap. across: used taps in a row of the filter.
ALWAYS_INLINE TapPosition advance(TapPosition at, const int channels, const int C, const int across) {
  at.c += channels;
  while (at.c >= C) {
    at.c -= C;
    if (++at.s == across) at.s = 0, ++at.r;
  }
  return at;
}
// The tap of a position as an index in the filter R x S. `down` and `across` are the Taps of both dimensions.
#define TAP(at) ((down.first + at.r * down.increment) * S + across.first + at.s * across.increment)

// What follows is for kernels with pixels of y in the rows of a tile. They have A_CHUNKS chunks of pixels and B_CHUNKS
// chunks of filters a work-item, ROWS_APART apart, from `row` of the tile on.
//
// Declares the phase of a work-group (conv/group.cl), the size of its part of y and its pixels in the batch, its tiles,
// and its taps.
#define DECLARE_PHASE                                                                                               \
  const int step_h = DATA_GRADIENT ? stride_h : 1, step_w = DATA_GRADIENT ? stride_w : 1;                           \
  const int phase_h = DATA_GRADIENT ? (int)get_group_id(2) / stride_w : 0,                                          \
            phase_w = DATA_GRADIENT ? (int)get_group_id(2) % stride_w : 0;                                          \
  const int rows = (OUT_H + step_h - 1) / step_h, columns = (OUT_W + step_w - 1) / step_w,                          \
            pixels = batch * rows * columns;                                                                        \
  const int m_tiles = (pixels + TILE_M - 1) / TILE_M, k_tiles = (K + TILE_N - 1) / TILE_N, group = get_group_id(1); \
  const Taps down = taps_of(R, phase_h, pad_h, stride_h, dilation_h),                                               \
             across = taps_of(S, phase_w, pad_w, stride_w, dilation_w);                                             \
  const int depth = down.count * across.count * C;

// Declares where in x the pixels of this work-item are read at shift 0: from[i], and places[i] with the row and the
// column, 16 bits each.
#define DECLARE_PLACES                                                                                      \
  __global const OPERAND_T* from[A_CHUNKS];                                                                 \
  int places[A_CHUNKS];                                                                                     \
  OCL_UNROLL                                                                                                \
  for (int i = 0; i < A_CHUNKS; ++i) {                                                                      \
    const int m = tile.x * TILE_M + row + i * ROWS_APART, column = m % columns, y_row = m / columns % rows, \
              n = m / columns / rows;                                                                       \
    const int h = m < pixels ? DATA_GRADIENT ? y_row : y_row * stride_h - pad_h : OUTSIDE;                  \
    const int v = DATA_GRADIENT ? column : column * stride_w - pad_w;                                       \
    from[i] = x + (x_offset + min(n, batch - 1) * x_n + (long)group * C + h * (long)x_h + v * (long)x_w);   \
    places[i] = (h << 16) | (v & 0xffff);                                                                   \
  }

// Declares the shift of position `at` of the depth, and calls TAKE(i, address, elements) for each chunk of x there: 0
// elements lie in the image, or CHUNK.
#define DECLARE_SHIFT(at)                                                                                   \
  const int over_h = down.shift - at.r * down.pixel_step, over_w = across.shift - at.s * across.pixel_step; \
  const int shift = over_h * x_h + over_w * x_w + at.c, used = at.r < down.count;
#define FOR_PIXELS(TAKE)                                                                \
  OCL_UNROLL                                                                            \
  for (int i = 0; i < A_CHUNKS; ++i) {                                                  \
    const int h = (places[i] >> 16) + over_h, v = (short)(places[i] & 0xffff) + over_w; \
    const int inside = used && (uint)h < (uint)in_h && (uint)v < (uint)in_w;            \
    TAKE(i, inside ? from[i] + shift : x, inside ? CHUNK : 0);                          \
  }
// The same for the chunks of w, whose filter is `k0 + row` on. w_count: filters of a group in w.
#define FOR_FILTERS(at, TAKE, w_count)                                                       \
  OCL_UNROLL                                                                                 \
  for (int i = 0; i < B_CHUNKS; ++i) {                                                       \
    const int inside = used && k0 + row + i * ROWS_APART < (w_count);                        \
    TAKE(i, inside ? filters + (i * w_rows + (TAP(at) * C + at.c)) : w, inside ? CHUNK : 0); \
  }

// 1 if no element of the work-group's tile lies outside of y. If the strides do not divide the sizes, the last row or
// column of a phase may lie outside.
#define WHOLE_TILE (ROWS_INSIDE && (tile.y + 1) * TILE_N <= K)
// The same for the rows of the tile, if vectors of columns lie inside of y or outside.
#define ROWS_INSIDE \
  (STORES_ALIGNED && (tile.x + 1) * TILE_M <= pixels && rows * step_h == OUT_H && columns * step_w == OUT_W)
// Declares image, row and column of y.
#define DECLARE_PIXEL(pixel)                                                               \
  const int n = (pixel) / columns / rows, h = (pixel) / columns % rows * step_h + phase_h, \
            v = (pixel) % columns * step_w + phase_w;
// Declares the same for a lane's two rows of a tile: pixels `first` and `first` + 8.
#define DECLARE_ROW_PIXELS(first)                   \
  int pixel_n[2], pixel_h[2], pixel_w[2];           \
  OCL_UNROLL                                        \
  for (int i = 0; i < 2; ++i) {                     \
    DECLARE_PIXEL((first) + i * 8)                  \
    pixel_n[i] = n, pixel_h[i] = h, pixel_w[i] = v; \
  }
