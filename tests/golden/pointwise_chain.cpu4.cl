// pointwise, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float4 op_relu_f32x4(float4 x) {
  return x < ((float4)(0.0f)) ? ((float4)(0.0f)) : x;
}

OCL_INLINE float4 op_own_exp_within_f32x4(float4 c) {
  const float4 m = fma(c, ((float4)(1.44269504f)), ((float4)(12582912.0f))), z = m - ((float4)(12582912.0f));
  const float4 r = fma(z, ((float4)(2.12194440e-4f)), fma(z, ((float4)(-0.693359375f)), c));
  float4 y = ((float4)(1.38201076e-3f));
  y = fma(y, r, ((float4)(8.36868491e-3f)));
  y = fma(y, r, ((float4)(4.16682735e-2f)));
  y = fma(y, r, ((float4)(0.166665211f)));
  y = fma(y, r, ((float4)(0.49999994f)));
  return (fma(y, r * r, r) + ((float4)(1.0f))) * as_float4((as_int4(m) << (int4)(23)) + (int4)(0x3f800000));
}

OCL_INLINE float4 op_own_exp_normal_f32x4(float4 x) {
  const float4 low = x < ((float4)(-87.3f)) ? ((float4)(-87.3f)) : x;
  return op_own_exp_within_f32x4(low > ((float4)(89.0f)) ? ((float4)(89.0f)) : low);
}

OCL_INLINE float4 op_own_sigmoid_f32x4(float4 x) {
  return ((float4)(1.0f)) / (((float4)(1.0f)) + op_own_exp_normal_f32x4(-x));
}

OCL_INLINE float op_relu_f32(float x) {
  return x < 0.0f ? 0.0f : x;
}

OCL_INLINE float op_own_exp_within_f32(float c) {
  const float m = fma(c, 1.44269504f, 12582912.0f), z = m - 12582912.0f;
  const float r = fma(z, 2.12194440e-4f, fma(z, ((float)(-0.693359375f)), c));
  float y = 1.38201076e-3f;
  y = fma(y, r, 8.36868491e-3f);
  y = fma(y, r, 4.16682735e-2f);
  y = fma(y, r, 0.166665211f);
  y = fma(y, r, 0.49999994f);
  return (fma(y, r * r, r) + 1.0f) * as_float((as_int(m) << (int)(23)) + (int)(0x3f800000));
}

OCL_INLINE float op_own_exp_normal_f32(float x) {
  const float low = x < ((float)(-87.3f)) ? ((float)(-87.3f)) : x;
  return op_own_exp_within_f32(low > 89.0f ? 89.0f : low);
}

OCL_INLINE float op_own_sigmoid_f32(float x) {
  return 1.0f / (1.0f + op_own_exp_normal_f32(-x));
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pointwise_816da3fd41f4(
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
      const float4 v5 = op_own_sigmoid_f32x4(v4);
      vstore4(v5, 0, out0 + i0 * 33 + i1);
    }
#pragma clang loop vectorize(disable)
    for (; i1 < 33; ++i1) {
      const float v6 = in0[i0 * 33 + i1];
      const float v7 = v6 * 2.0f;
      const float v8 = in1[i1];
      const float v9 = v7 + v8;
      const float v10 = op_relu_f32(v9);
      const float v11 = op_own_sigmoid_f32(v10);
      out0[i0 * 33 + i1] = v11;
    }
  }
}
