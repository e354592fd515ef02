// kernels/conv/weight_warp.cl: gradient of a 2-D convolution with respect to its weight on warp tensor cores. Both
// tensors are read in place.
//
// The formula and the splits over pixels are those of conv/weight_group.cl, the loop is in tensor_core/warp.cl. GEMM
// with M = filters k (A = dy, filters contiguous), N = (r, s, c) flattened with c fastest (B = x), depth = pixels of
// dy. A chunk of x (16 bytes) has channels of one tap, so C is a multiple of CHUNK.
//
//            TILE_M filters             TILE_N columns (r, s, c)
//          +----------------+         +--------------------------+
//    dy    | pixel: chunks  |     x   | pixel, shifted by the    |   TILE_K pixels per step
//          | next           |         | column's tap: chunks     |
//          +----------------+         +--------------------------+
//
// A work-item copies one chunk of filters and one chunk of columns for some pixels of each step. The tap of its columns
// never changes. The pixels that it copies are A_PIXEL_STEP pixels apart for dy, and B_PIXEL_STEP for x.
//
// split_pixels (pixels of a split) is a multiple of TILE_K. The channel strides are 1; C, K and the other strides are
//   multiples of CHUNK.
// Grid: global (ceil(R*S*C/TILE_N) * ceil(K/TILE_M) * GROUP_SIZE, groups, splits), local (GROUP_SIZE, 1, 1).
// Epilogue macros: STORE(acc, split * filters + k, c, r, s); k over all groups, c within the group. Store dimension c,
//   VW 2 or as many elements as 16 bytes have.
#define A_PIXEL_STEP (GROUP_SIZE / (TILE_M / CHUNK))  // pixels from one chunk of a work-item to the next
#define B_PIXEL_STEP (GROUP_SIZE / (TILE_N / CHUNK))

// The pixel of x that a work-item's tap reads for the current pixel of dy. next_pixel moves it forward by B_PIXEL_STEP
// pixels of dy. It needs no division, because this distance was split into images, rows and columns before the loop.
typedef struct {
  __global const OPERAND_T* image;  // address of the image, at the chunk's channels
  int h, v;  // row and column in the image; may lie outside of it
  int h_end, v_end;  // one past the last row and column that the tap reads
  int h_by, v_by;  // rows and columns of x that next_pixel adds, before it carries over to the next row or image
  long image_by;  // elements that next_pixel adds to the image's address, before the carry
} PixelWalk;

// Returns the place that the tap reads for pixel number `pixel` of dy. image: the image of pixel 0, at the chunk's
// channels. low_h, low_w: row and column of x that the tap reads for row and column 0 of dy.
ALWAYS_INLINE PixelWalk pixel_walk(const int pixel, __global const OPERAND_T* image, const long x_n, const int out_h,
                                   const int out_w, const int stride_h, const int stride_w, const int low_h,
                                   const int low_w) {
  const PixelWalk at = {image + pixel / out_w / out_h * x_n,
                        pixel / out_w % out_h * stride_h + low_h,
                        pixel % out_w * stride_w + low_w,
                        out_h * stride_h + low_h,
                        out_w * stride_w + low_w,
                        B_PIXEL_STEP / out_w % out_h * stride_h,
                        B_PIXEL_STEP % out_w * stride_w,
                        B_PIXEL_STEP / out_w / out_h * x_n};
  return at;
}
// height, width: rows of x that an image of dy covers, and columns that a row of dy covers.
ALWAYS_INLINE PixelWalk next_pixel(PixelWalk at, const long x_n, const int height, const int stride_h,
                                   const int width) {
  at.v += at.v_by;
  const int row = at.v >= at.v_end;
  at.v -= row ? width : 0;
  at.h += at.h_by + (row ? stride_h : 0);
  const int image = at.h >= at.h_end;
  at.h -= image ? height : 0;
  at.image += at.image_by + (image ? x_n : 0);
  return at;
}

#define STAGE_PIXELS(to)                                                                                             \
  {                                                                                                                  \
    OCL_UNROLL                                                                                                       \
    for (int i = 0; i < TILE_K / A_PIXEL_STEP; ++i) {                                                                \
      const int pixel = a_pixel + i * A_PIXEL_STEP, inside = pixel < last && a_used;                                 \
      const long from =                                                                                              \
          DY_DENSE ? (long)pixel * dy_w                                                                              \
                   : pixel / out_w / out_h * dy_n + pixel / out_w % out_h * (long)dy_h + pixel % out_w * (long)dy_w; \
      stage_chunk((to) + column_chunk(a_line + i * A_PIXEL_STEP, a_chunk, TILE_M), inside ? dy + from : x, 1,        \
                  inside ? CHUNK : 0, dy_aligned);                                                                   \
    }                                                                                                                \
    OCL_UNROLL                                                                                                       \
    for (int i = 0; i < TILE_K / B_PIXEL_STEP; ++i) {                                                                \
      const int inside = b_pixel + i * B_PIXEL_STEP < last && (uint)at.h < (uint)in_h && (uint)at.v < (uint)in_w;    \
      stage_chunk((to) + A_ELEMENTS + column_chunk(b_line + i * B_PIXEL_STEP, b_chunk, TILE_N),                      \
                  inside ? at.image + (at.h * x_h + at.v * x_w) : x, 1, inside ? CHUNK : 0, x_aligned);              \
      at = next_pixel(at, x_n, out_h * stride_h, stride_h, out_w * stride_w);                                        \
    }                                                                                                                \
    a_pixel += TILE_K;                                                                                               \
    b_pixel += TILE_K;                                                                                               \
  }

// dy: [batch, groups * K, out_h, out_w] by strides; x: [batch, groups * C, in_h, in_w] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  LOCAL_STAGES(stages);
  const int width = R * S * C, group = get_group_id(1), split = get_group_id(2), p = get_local_id(0);
  const int2 tile = tile_at(get_group_id(0), (K + TILE_M - 1) / TILE_M, (width + TILE_N - 1) / TILE_N);
  const int m0 = tile.x * TILE_M, n0 = tile.y * TILE_N;
  const int first = split * split_pixels, last = min(batch * out_h * out_w, first + split_pixels),
            steps = max(0, (last - first + TILE_K - 1) / TILE_K);
  const int dy_aligned = CHUNK_ALIGNED(dy_offset), x_aligned = CHUNK_ALIGNED(x_offset);

  const int a_chunk = p % (TILE_M / CHUNK), a_line = p / (TILE_M / CHUNK), a_used = m0 + a_chunk * CHUNK < K;
  const int b_chunk = p % (TILE_N / CHUNK), b_line = p / (TILE_N / CHUNK), column = n0 + b_chunk * CHUNK;
  int a_pixel = first + a_line, b_pixel = first + b_line;
  dy += dy_offset + (long)group * K + m0 + a_chunk * CHUNK;
  x += x_offset;
  PixelWalk at =
      pixel_walk(b_pixel, x + ((long)group * C + column % C), x_n, out_h, out_w, stride_h, stride_w,
                 column < width ? column / C / S * dilation_h - pad_h : OUTSIDE, column / C % S * dilation_w - pad_w);
  float total[SUMS];
  MULTIPLY_STEPS(total, stages, steps, 0, 0, STAGE_PIXELS);

  const int m = m0 + warp_row(), filters = (split * (int)get_global_size(1) + group) * K;
  UNROLL_STORES
  for (int step = 0; step < WARP_M / 16; ++step) {
    RowVector vectors[2 * LANE_VECTORS];
    next_warp_rows(vectors, total);
    OCL_UNROLL
    for (int i = 0; i < 2 * LANE_VECTORS; ++i) {
      RowVector sum = vectors[i];
      const int k = m + step * 16 + i / LANE_VECTORS * 8, n = n0 + warp_column() + vector_column(i % LANE_VECTORS),
                c = n % C, s = n / C % S, r = n / C / S;
      if (n >= width || k >= K) continue;
      if (c + VW <= STORED_C) {  // a vector lies in one tap, because C is a multiple of CHUNK
        STOREV(sum, filters + k, c, r, s);
      } else {
        OCL_NO_UNROLL
        for (int l = c; l < STORED_C; ++l, sum = ROTATED(sum)) STORE(sum.s0, filters + k, l, r, s);
      }
    }
  }
}
