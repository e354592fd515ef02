// kernels/conv/weight_sums.cl: products of packed operands that weight gradients on CPUs add up. Comes before
// conv/weight_packed_item.cl and winograd/weight_item.cl, whose macros MR, NV and CB it takes.
#define TN (NV * VW)  // channels c of a register tile

// Adds `count` products of MR numbers of a and TN numbers of b, which follow each other after a pitch, to MR x TN sums, whose rows
// are CB floats apart. is_first: nothing is there yet.
ALWAYS_INLINE void add_products(__global float* sums, __global const float* a, const int pitch_a,
                                __global const float* b, const int pitch_b, const int count, const int is_first) {
  VEC acc[MR][NV];
  OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
  for (int t = 0; t < count; ++t) {
    VEC bv[NV];
    OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = VLOAD(b + t * pitch_b + v * VW);
    OCL_UNROLL for (int i = 0; i < MR; ++i) {
      const VEC av = (VEC)(a[t * pitch_a + i]);
      OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
    }
  }
  if (!is_first) {
    OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] +=
        VLOAD(sums + i * CB + v * VW);
  }
  OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v)
      VSTORE(acc[i][v], sums + i * CB + v * VW);
}
