// reduction, groups 11 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float16 op_own_exp_within_f32x16(float16 c) {
  const float16 m = fma(c, ((float16)(1.44269504f)), ((float16)(12582912.0f))), z = m - ((float16)(12582912.0f));
  const float16 r = fma(z, ((float16)(2.12194440e-4f)), fma(z, ((float16)(-0.693359375f)), c));
  float16 y = ((float16)(1.38201076e-3f));
  y = fma(y, r, ((float16)(8.36868491e-3f)));
  y = fma(y, r, ((float16)(4.16682735e-2f)));
  y = fma(y, r, ((float16)(0.166665211f)));
  y = fma(y, r, ((float16)(0.49999994f)));
  return (fma(y, r * r, r) + ((float16)(1.0f))) * as_float16((as_int16(m) << (int16)(23)) + (int16)(0x3f800000));
}

OCL_INLINE float16 op_own_exp_falling_f32x16(float16 x) {
  return op_own_exp_within_f32x16(x < ((float16)(-88.0f)) ? ((float16)(-88.0f)) : x);
}

OCL_INLINE float8 op_own_exp_within_f32x8(float8 c) {
  const float8 m = fma(c, ((float8)(1.44269504f)), ((float8)(12582912.0f))), z = m - ((float8)(12582912.0f));
  const float8 r = fma(z, ((float8)(2.12194440e-4f)), fma(z, ((float8)(-0.693359375f)), c));
  float8 y = ((float8)(1.38201076e-3f));
  y = fma(y, r, ((float8)(8.36868491e-3f)));
  y = fma(y, r, ((float8)(4.16682735e-2f)));
  y = fma(y, r, ((float8)(0.166665211f)));
  y = fma(y, r, ((float8)(0.49999994f)));
  return (fma(y, r * r, r) + ((float8)(1.0f))) * as_float8((as_int8(m) << (int8)(23)) + (int8)(0x3f800000));
}

OCL_INLINE float8 op_own_exp_falling_f32x8(float8 x) {
  return op_own_exp_within_f32x8(x < ((float8)(-88.0f)) ? ((float8)(-88.0f)) : x);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void softmax_76fe26d82657(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset,
    const int row_chunk) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int first = (int)get_group_id(0) * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(64));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    float16 a0 = (float16)(-INFINITY);
    float8 a1 = (float8)(-INFINITY);
    for (int r0 = 0; r0 + 16 <= 1000; r0 += 16) {
      const float16 v0 = vload16(0, in0 + i0 * 1000 + r0);
      const float16 v1 = v0 * (float16)(0x1p-3f);
      vstore16(v1, 0, out0 + i0 * 1000 + r0);
      a0 = v1 > a0 ? v1 : a0;
    }
    {
      const float8 v2 = vload8(0, in0 + i0 * 1000 + 992);
      const float8 v3 = v2 * (float8)(0x1p-3f);
      vstore8(v3, 0, out0 + i0 * 1000 + 992);
      a1 = v3 > a1 ? v3 : a1;
    }
    float8 a2 = a0.hi > a0.lo ? a0.hi : a0.lo;
    float4 a3 = a2.hi > a2.lo ? a2.hi : a2.lo;
    float2 a4 = a3.hi > a3.lo ? a3.hi : a3.lo;
    float a5 = a4.s1 > a4.s0 ? a4.s1 : a4.s0;
    float4 a6 = a1.hi > a1.lo ? a1.hi : a1.lo;
    float2 a7 = a6.hi > a6.lo ? a6.hi : a6.lo;
    float a8 = a7.s1 > a7.s0 ? a7.s1 : a7.s0;
    a5 = a8 > a5 ? a8 : a5;
    float16 a9 = (float16)(0);
    float8 a10 = (float8)(0);
    for (int r0 = 0; r0 + 16 <= 1000; r0 += 16) {
      const float16 e0 = vload16(0, out0 + i0 * 1000 + r0);
      const float16 e1 = op_own_exp_falling_f32x16(e0 - (float16)(a5));
      vstore16(e1, 0, out0 + i0 * 1000 + r0);
      const float16 e2 = e0 == (float16)(a5) ? (float16)(1) : e1;
      a9 = a9 + e2;
    }
    {
      const float8 e3 = vload8(0, out0 + i0 * 1000 + 992);
      const float8 e4 = op_own_exp_falling_f32x8(e3 - (float8)(a5));
      vstore8(e4, 0, out0 + i0 * 1000 + 992);
      const float8 e5 = e3 == (float8)(a5) ? (float8)(1) : e4;
      a10 = a10 + e5;
    }
    float8 a11 = a9.lo + a9.hi;
    float4 a12 = a11.lo + a11.hi;
    float2 a13 = a12.lo + a12.hi;
    float a14 = a13.s0 + a13.s1;
    float4 a15 = a10.lo + a10.hi;
    float2 a16 = a15.lo + a15.hi;
    float a17 = a16.s0 + a16.s1;
    a14 = a14 + a17;
    const float a18 = a14 == a14 ? a5 : a14;
    const float v4 = a18 - a18;
    const float v5 = a14 + v4;
    const float v7 = 1 / v5;
    for (int r0 = 0; r0 + 16 <= 1000; r0 += 16) {
      const float16 v6 = vload16(0, out0 + i0 * 1000 + r0);
      const float16 v8 = v6 * (float16)(v7);
      vstore16(v8, 0, out0 + i0 * 1000 + r0);
    }
    {
      const float8 v9 = vload8(0, out0 + i0 * 1000 + 992);
      const float8 v10 = v9 * (float8)(v7);
      vstore8(v10, 0, out0 + i0 * 1000 + 992);
    }
  }
}
