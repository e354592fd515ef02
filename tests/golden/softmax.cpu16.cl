// reduction, groups 11 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float16 op_maximum_f32x16(float16 a, float16 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// s * exp(m - n) + t * exp(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float16 op_softmax_sum_f32x16(float16 m, float16 s, float16 k, float16 t) {
  const float16 e = m == k ? ((float16)(1.0f)) : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float op_maximum_f32(float a, float b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// s * exp(m - n) + t * exp(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float op_softmax_sum_f32(float m, float s, float k, float t) {
  const float e = m == k ? 1.0f : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float8 op_maximum_f32x8(float8 a, float8 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// s * exp(m - n) + t * exp(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float8 op_softmax_sum_f32x8(float8 m, float8 s, float8 k, float8 t) {
  const float8 e = m == k ? ((float8)(1.0f)) : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float4 op_maximum_f32x4(float4 a, float4 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// s * exp(m - n) + t * exp(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float4 op_softmax_sum_f32x4(float4 m, float4 s, float4 k, float4 t) {
  const float4 e = m == k ? ((float4)(1.0f)) : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float2 op_maximum_f32x2(float2 a, float2 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// s * exp(m - n) + t * exp(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float2 op_softmax_sum_f32x2(float2 m, float2 s, float2 k, float2 t) {
  const float2 e = m == k ? ((float2)(1.0f)) : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void softmax_b4cf4769d2b5(
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
    float16 a1 = (float16)(0);
    float a2 = -INFINITY;
    float a3 = 0;
    {
      int r0 = 0;
      for (; r0 + 16 <= 1000; r0 += 16) {
        const float16 v0 = vload16(0, in0 + i0 * 1000 + r0);
        const float16 v1 = v0 * (float16)(0x1p-3f);
        const float16 n0 = op_maximum_f32x16(a0, v1);
        const float16 n1 = op_softmax_sum_f32x16(a0, a1, v1, 1);
        a0 = n0;
        a1 = n1;
      }
      for (; r0 < 1000; ++r0) {
        const float v2 = in0[i0 * 1000 + r0];
        const float v3 = v2 * 0x1p-3f;
        const float n2 = op_maximum_f32(a2, v3);
        const float n3 = op_softmax_sum_f32(a2, a3, v3, 1);
        a2 = n2;
        a3 = n3;
      }
    }
    float8 a4 = op_maximum_f32x8(a0.lo, a0.hi);
    float8 a5 = op_softmax_sum_f32x8(a0.lo, a1.lo, a0.hi, a1.hi);
    float4 a6 = op_maximum_f32x4(a4.lo, a4.hi);
    float4 a7 = op_softmax_sum_f32x4(a4.lo, a5.lo, a4.hi, a5.hi);
    float2 a8 = op_maximum_f32x2(a6.lo, a6.hi);
    float2 a9 = op_softmax_sum_f32x2(a6.lo, a7.lo, a6.hi, a7.hi);
    float a10 = op_maximum_f32(a8.s0, a8.s1);
    float a11 = op_softmax_sum_f32(a8.s0, a9.s0, a8.s1, a9.s1);
    const float n4 = op_maximum_f32(a10, a2);
    const float n5 = op_softmax_sum_f32(a10, a11, a2, a3);
    a10 = n4;
    a11 = n5;
    {
      int r0 = 0;
      for (; r0 + 16 <= 1000; r0 += 16) {
        const float16 v4 = vload16(0, in0 + i0 * 1000 + r0);
        const float16 v5 = v4 * (float16)(0x1p-3f);
        const float16 v6 = v5 - (float16)(a10);
        const float16 v7 = exp(v6);
        const float16 v8 = v7 / (float16)(a11);
        vstore16(v8, 0, out0 + i0 * 1000 + r0);
      }
      for (; r0 < 1000; ++r0) {
        const float v9 = in0[i0 * 1000 + r0];
        const float v10 = v9 * 0x1p-3f;
        const float v11 = v10 - a10;
        const float v12 = exp(v11);
        const float v13 = v12 / a11;
        out0[i0 * 1000 + r0] = v13;
      }
    }
  }
}
