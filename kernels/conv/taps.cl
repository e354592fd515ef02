// kernels/conv/taps.cl: steps through the depth of a convolution on tensor cores, as an implicit GEMM, and the macros of
// such kernels. The depth consists of the taps that are used, and of the channels of each tap.
// Macros of a launch: DATA_GRADIENT (1: gradient with respect to the input).
#ifndef STORE
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset  // NHWC
#define Y_AT(n, k, h, w) (y_offset + (((ulong)(n) * out_h + (h)) * out_w + (w)) * (get_global_size(1) * K) + (k))
#define STORE(acc, n, k, h, w) (y[Y_AT(n, k, h, w)] = (acc))
#define STOREV(acc, n, k, h, w) OCL_CAT(vstore, VW)(acc, 0, y + Y_AT(n, k, h, w))
// the statistics follow the last element of y
#define STORE1(value, which, slice, k) \
  (y[Y_AT(batch, 0, 0, 0) + (ulong)((which) * slices + (slice)) * (get_global_size(1) * K) + (k)] = (value))
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
