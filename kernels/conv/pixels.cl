// kernels/conv/pixels.cl: pixels of a batch of images, counted over images, rows and columns. Comes before conv/group.cl,
// conv/weight_group.cl and conv/weight_subgroup_matrix.cl.
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
