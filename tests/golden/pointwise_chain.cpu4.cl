// pointwise, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float4 op_relu_f32x4(float4 x) {
  return x < ((float4)(0.0f)) ? ((float4)(0.0f)) : x;
}

OCL_INLINE float4 op_sigmoid_f32x4(float4 x) {
  return ((float4)(1.0f)) / (((float4)(1.0f)) + exp(-x));
}

OCL_INLINE float op_relu_f32(float x) {
  return x < 0.0f ? 0.0f : x;
}

OCL_INLINE float op_sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp(-x));
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pointwise_f3d46f080579(
    __global const float* in0, const ulong in0_offset,
    __global const float* in1, const ulong in1_offset,
    __global float* out0, const ulong out0_offset,
    const int row_chunk) {
  in0 += in0_offset;
  in1 += in1_offset;
  out0 += out0_offset;
  const int first = (int)get_group_id(1) * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(100));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    int i1 = 0;
    for (; i1 + 4 <= 33; i1 += 4) {
      const float4 v0 = vload4(0, in0 + i0 * 33 + i1);
      const float4 v1 = v0 * (float4)(2.0f);
      const float4 v2 = vload4(0, in1 + i1);
      const float4 v3 = v1 + v2;
      const float4 v4 = op_relu_f32x4(v3);
      const float4 v5 = op_sigmoid_f32x4(v4);
      vstore4(v5, 0, out0 + i0 * 33 + i1);
    }
    for (; i1 < 33; ++i1) {
      const float v6 = in0[i0 * 33 + i1];
      const float v7 = v6 * 2.0f;
      const float v8 = in1[i1];
      const float v9 = v7 + v8;
      const float v10 = op_relu_f32(v9);
      const float v11 = op_sigmoid_f32(v10);
      out0[i0 * 33 + i1] = v11;
    }
  }
}
