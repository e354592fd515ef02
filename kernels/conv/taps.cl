// kernels/conv/taps.cl: the depth of a convolution as an implicit GEMM on matrix units: used taps, channels innermost.
#ifndef DATA_GRADIENT
#define DATA_GRADIENT 0  // 1: gradient with respect to the input
#endif
#define OUTSIDE (-0x4000)  // a coordinate that no tap brings back into the image

// The taps that a phase uses: first, first + apart, ... below the filter's size. Used tap number t finds a pixel `shift
// - t * turn` from the pixel's own place.
typedef struct {
  int first, apart, count, shift, turn;
} Taps;

ALWAYS_INLINE Taps taps_of(const int size, const int phase, const int pad, const int stride, const int dilation) {
  Taps taps = {0, 1, size, 0, -dilation};
  if (DATA_GRADIENT) {
    while (taps.first < size && (phase + pad - taps.first * dilation) % stride != 0) ++taps.first;
    while (taps.first + taps.apart < size && taps.apart * dilation % stride != 0) ++taps.apart;
    taps.count = (size - taps.first + taps.apart - 1) / taps.apart;
    taps.shift = (phase + pad - taps.first * dilation) / stride;
    taps.turn = taps.apart * dilation / stride;
  }
  return taps;
}

// A chunk of the depth: channels c .. of used tap (r, s).
typedef struct {
  int c, r, s;
} Place;

ALWAYS_INLINE Place further(Place at, const int by, const int C, const int across) {
  at.c += by;
  while (at.c >= C) {
    at.c -= C;
    if (++at.s == across) at.s = 0, ++at.r;
  }
  return at;
}
// A place's tap in the filter R x S.
#define TAP(at) ((down.first + at.r * down.apart) * S + across.first + at.s * across.apart)
