// pointwise, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE int op_minimum_i32(int a, int b) {
  return min(a, b);
}

OCL_INLINE int op_maximum_i32(int a, int b) {
  return max(a, b);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pointwise_aeee3c010d1f(
    __global const long* in0, const ulong in0_offset,
    __global const float* in1, const ulong in1_offset,
    __global float* out0, const ulong out0_offset,
    const int row_chunk) {
  in0 += in0_offset;
  in1 += in1_offset;
  out0 += out0_offset;
  const int first = (int)get_group_id(1) * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(4));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    const long v0 = in0[i0];
    const int v1 = (int)v0;
    const int v2 = v1 < 0;
    const int v3 = as_int(as_uint(v1) + as_uint(9));
    const int v4 = v2 ? v3 : v1;
    const int v5 = op_minimum_i32(v4, 8);
    const int v6 = op_maximum_i32(0, v5);
    for (int i1 = 0; i1 < 2; i1 += 2) {
      const float2 v7 = vload2(0, in1 + i1 + v6 * 5 + 3);
      const float2 v8 = v7 * (float2)(2.0f);
      vstore2(v8, 0, out0 + i0 * 2 + i1);
    }
  }
}
