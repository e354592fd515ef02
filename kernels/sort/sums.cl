// kernels/sort/sums.cl: the sum of the numbers that the work-items before this one have.
//
// Macros of a launch: ITEMS (work-items of a group).

// `sums`: a number for each work-item. All of them have read and written local memory before it returns. Inlined, because PoCL 3.1
// miscompiles barriers in a function that is called.
ALWAYS_INLINE int sum_before(__local ushort* sums, const int own, const int lane) {
  sums[lane] = own;
  for (int step = 1; step < ITEMS; step *= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);  // The sums of `step` work-items are there.
    const int more = lane >= step ? sums[lane - step] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // All have read them.
    sums[lane] += more;
  }
  return sums[lane] - own;
}
