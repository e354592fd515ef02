// kernels/conv/pixels.cl: pixels of a batch of images, counted over images, rows and columns, and macros of the portable
// kernels. Comes before conv/group.cl, conv/weight_group.cl and conv/weight_subgroup_matrix.cl.
// FILTER_R, FILTER_S: if defined, constants that replace the arguments R, S.
#ifndef FILTER_R
#define FILTER_R R
#endif
#ifndef FILTER_S
#define FILTER_S S
#endif
// SUM_OF: the sum of a result, with SUM_STEPS the total and what was added since.
#if SUM_STEPS
#define SUM_OF(i) (total[i] + acc[i])
#else
#define SUM_OF(i) acc[i]
#endif
typedef struct {
  int n, h, w;  // image, row and column
} Pixel;

// Returns pixel number m.
OCL_INLINE Pixel pixel_of(const int m, const int rows, const int columns) {
  Pixel p;
  p.w = m % columns;
  p.h = m / columns % rows;
  p.n = m / columns / rows;
  return p;
}

// Returns the pixel `by` pixels later. It needs no division, because the distance was split into images, rows and columns
// before the loop.
OCL_INLINE Pixel next_pixel(Pixel at, const Pixel by, const int rows, const int columns) {
  at.w += by.w;
  const int row = at.w >= columns;
  at.w -= row ? columns : 0;
  at.h += by.h + row;
  const int image = at.h >= rows;
  at.h -= image ? rows : 0;
  at.n += by.n + image;
  return at;
}
