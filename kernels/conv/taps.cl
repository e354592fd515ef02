// kernels/conv/taps.cl: the depth of a convolution on tensor cores, as an implicit GEMM: the taps that are used, and of
// each tap the channels.
#ifndef DATA_GRADIENT
#define DATA_GRADIENT 0  // 1: gradient with respect to the input
#endif
#define OUTSIDE (-0x4000)  // a coordinate that no tap brings back into the image

// The taps that a phase uses: first, first + increment, ... below the filter's size, `count` in all. Used tap t reads
// the input pixel at offset `shift - t * pixel_step`.
typedef struct {
  int first, increment, count, shift, pixel_step;
} Taps;

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

ALWAYS_INLINE TapPosition advance(TapPosition at, const int channels, const int C, const int across) {
  at.c += channels;
  while (at.c >= C) {
    at.c -= C;
    if (++at.s == across) at.s = 0, ++at.r;
  }
  return at;
}
// The tap of a position as an index in the filter R x S.
#define TAP(at) ((down.first + at.r * down.increment) * S + across.first + at.s * across.increment)
