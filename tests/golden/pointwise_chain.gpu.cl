// pointwise, groups 13 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float op_relu_f32(float x) {
  return x < 0.0f ? 0.0f : x;
}

OCL_INLINE float op_sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp(-x));
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void pointwise_58f582ba02b6(
    __global const float* in0, const ulong in0_offset,
    __global const float* in1, const ulong in1_offset,
    __global float* out0, const ulong out0_offset) {
  in0 += in0_offset;
  in1 += in1_offset;
  out0 += out0_offset;
  for (int at = get_global_id(0); at < 3300; at += get_global_size(0)) {
    const int i1 = (at % 33);
    const int i0 = (at / 33);
    const float v0 = in0[i0 * 33 + i1];
    const float v1 = v0 * 2.0f;
    const float v2 = in1[i1];
    const float v3 = v1 + v2;
    const float v4 = op_relu_f32(v3);
    const float v5 = op_sigmoid_f32(v4);
    out0[i0 * 33 + i1] = v5;
  }
}
