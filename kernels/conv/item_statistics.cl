// kernels/conv/item_statistics.cl: how work-items store the statistics of a slice. Comes before conv/item.cl and
// conv/image_item.cl, with STATISTICS 1.
#ifndef STORE1  // without generated epilogue macros: dense [which][slice][k], behind y
#define STORE1(acc, which, slice, k) STORE(acc, batch, k, 0, (which) * SLICES + (slice))
#define STORE1V(acc, which, slice, k) STOREV(acc, batch, k, 0, (which) * SLICES + (slice))
#endif

// Stores mean, m2 (the sum of squared distances from it) and count of `width` of the TN channels that begin at k0, by
// STORE1(value, which, slice, k). means, m2s: NV vectors each.
#define STORE_STATISTICS(means, m2s, count, slice, width, k0)                                                      \
  float results[3 * TN];                                                                                           \
  OCL_UNROLL for (int v = 0; v < NV; ++v) {                                                                        \
    VSTORE(means[v], results + v * VW);                                                                            \
    VSTORE(m2s[v], results + TN + v * VW);                                                                         \
    VSTORE((VEC)(count), results + 2 * TN + v * VW);                                                               \
  }                                                                                                                \
  OCL_NO_UNROLL for (int which = 0; which < 3; ++which) {                                                          \
    int k = 0;                                                                                                     \
    OCL_NO_UNROLL for (; k + VW <= width; k += VW) STORE1V(VLOAD(results + which * TN + k), which, slice, k0 + k); \
    OCL_NO_UNROLL for (; k < width; ++k) STORE1(results[which * TN + k], which, slice, k0 + k);                    \
  }
