// pointwise, groups 1 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE long op_minimum_i64(long a, long b) {
  return min(a, b);
}

OCL_INLINE long op_maximum_i64(long a, long b) {
  return max(a, b);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void pointwise_b0eb00ff808e(
    __global const long* in0, const ulong in0_offset,
    __global const float* in1, const ulong in1_offset,
    __global float* out0, const ulong out0_offset) {
  in0 += in0_offset;
  in1 += in1_offset;
  out0 += out0_offset;
  for (int at = get_global_id(0); at < 8; at += get_global_size(0)) {
    const int i1 = (at % 2);
    const int i0 = (at / 2);
    const long v0 = in0[i0];
    const int v1 = v0 < 0L;
    const long v2 = as_long(as_ulong(v0) + as_ulong(9L));
    const long v3 = v1 ? v2 : v0;
    const long v4 = op_minimum_i64(v3, 8L);
    const long v5 = op_maximum_i64(0L, v4);
    const float v6 = in1[i1 + v5 * 5 + 3];
    const float v7 = v6 * 2.0f;
    out0[i0 * 2 + i1] = v7;
  }
}
