// reduction, groups 11 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float16 op_maximum_f32x16(float16 a, float16 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// e^x = 2^n e^r, r = x - n ln 2 in two steps, e^r - 1 - r = r^2 * polynomial. The integer n comes from the bits of m: rint() is slow on some runtimes.
// 2^n in two factors reaches subnormal numbers and infinity.
OCL_INLINE float16 op_own_exp_f32x16(float16 x) {
  const float16 low = x < ((float16)(-104.0f)) ? ((float16)(-104.0f)) : x, c = low > ((float16)(89.0f)) ? ((float16)(89.0f)) : low;
  const float16 m = fma(c, ((float16)(1.44269504f)), ((float16)(12582912.0f))), z = m - ((float16)(12582912.0f));
  const float16 r = fma(z, ((float16)(2.12194440e-4f)), fma(z, ((float16)(-0.693359375f)), c));
  float16 y = ((float16)(1.38201076e-3f));
  y = fma(y, r, ((float16)(8.36868491e-3f)));
  y = fma(y, r, ((float16)(4.16682735e-2f)));
  y = fma(y, r, ((float16)(0.166665211f)));
  y = fma(y, r, ((float16)(0.49999994f)));
  const int16 n = as_int16(m) - (int16)(0x4b400000), half_n = n >> (int16)(1);
  const float16 first = as_float16((half_n + (int16)(127)) << (int16)(23)), second = as_float16((n - half_n + (int16)(127)) << (int16)(23));
  return (fma(y, r * r, r) + ((float16)(1.0f))) * first * second;
}

// s * op_own_exp_f32x16(m - n) + t * op_own_exp_f32x16(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float16 op_softmax_sum_f32x16(float16 m, float16 s, float16 k, float16 t) {
  const float16 e = m == k ? ((float16)(1.0f)) : op_own_exp_f32x16(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float op_maximum_f32(float a, float b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// e^x = 2^n e^r, r = x - n ln 2 in two steps, e^r - 1 - r = r^2 * polynomial. The integer n comes from the bits of m: rint() is slow on some runtimes.
// 2^n in two factors reaches subnormal numbers and infinity.
OCL_INLINE float op_own_exp_f32(float x) {
  const float low = x < ((float)(-104.0f)) ? ((float)(-104.0f)) : x, c = low > 89.0f ? 89.0f : low;
  const float m = fma(c, 1.44269504f, 12582912.0f), z = m - 12582912.0f;
  const float r = fma(z, 2.12194440e-4f, fma(z, ((float)(-0.693359375f)), c));
  float y = 1.38201076e-3f;
  y = fma(y, r, 8.36868491e-3f);
  y = fma(y, r, 4.16682735e-2f);
  y = fma(y, r, 0.166665211f);
  y = fma(y, r, 0.49999994f);
  const int n = as_int(m) - (int)(0x4b400000), half_n = n >> (int)(1);
  const float first = as_float((half_n + (int)(127)) << (int)(23)), second = as_float((n - half_n + (int)(127)) << (int)(23));
  return (fma(y, r * r, r) + 1.0f) * first * second;
}

// s * op_own_exp_f32(m - n) + t * op_own_exp_f32(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float op_softmax_sum_f32(float m, float s, float k, float t) {
  const float e = m == k ? 1.0f : op_own_exp_f32(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float8 op_maximum_f32x8(float8 a, float8 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// e^x = 2^n e^r, r = x - n ln 2 in two steps, e^r - 1 - r = r^2 * polynomial. The integer n comes from the bits of m: rint() is slow on some runtimes.
// 2^n in two factors reaches subnormal numbers and infinity.
OCL_INLINE float8 op_own_exp_f32x8(float8 x) {
  const float8 low = x < ((float8)(-104.0f)) ? ((float8)(-104.0f)) : x, c = low > ((float8)(89.0f)) ? ((float8)(89.0f)) : low;
  const float8 m = fma(c, ((float8)(1.44269504f)), ((float8)(12582912.0f))), z = m - ((float8)(12582912.0f));
  const float8 r = fma(z, ((float8)(2.12194440e-4f)), fma(z, ((float8)(-0.693359375f)), c));
  float8 y = ((float8)(1.38201076e-3f));
  y = fma(y, r, ((float8)(8.36868491e-3f)));
  y = fma(y, r, ((float8)(4.16682735e-2f)));
  y = fma(y, r, ((float8)(0.166665211f)));
  y = fma(y, r, ((float8)(0.49999994f)));
  const int8 n = as_int8(m) - (int8)(0x4b400000), half_n = n >> (int8)(1);
  const float8 first = as_float8((half_n + (int8)(127)) << (int8)(23)), second = as_float8((n - half_n + (int8)(127)) << (int8)(23));
  return (fma(y, r * r, r) + ((float8)(1.0f))) * first * second;
}

// s * op_own_exp_f32x8(m - n) + t * op_own_exp_f32x8(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float8 op_softmax_sum_f32x8(float8 m, float8 s, float8 k, float8 t) {
  const float8 e = m == k ? ((float8)(1.0f)) : op_own_exp_f32x8(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float4 op_maximum_f32x4(float4 a, float4 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// e^x = 2^n e^r, r = x - n ln 2 in two steps, e^r - 1 - r = r^2 * polynomial. The integer n comes from the bits of m: rint() is slow on some runtimes.
// 2^n in two factors reaches subnormal numbers and infinity.
OCL_INLINE float4 op_own_exp_f32x4(float4 x) {
  const float4 low = x < ((float4)(-104.0f)) ? ((float4)(-104.0f)) : x, c = low > ((float4)(89.0f)) ? ((float4)(89.0f)) : low;
  const float4 m = fma(c, ((float4)(1.44269504f)), ((float4)(12582912.0f))), z = m - ((float4)(12582912.0f));
  const float4 r = fma(z, ((float4)(2.12194440e-4f)), fma(z, ((float4)(-0.693359375f)), c));
  float4 y = ((float4)(1.38201076e-3f));
  y = fma(y, r, ((float4)(8.36868491e-3f)));
  y = fma(y, r, ((float4)(4.16682735e-2f)));
  y = fma(y, r, ((float4)(0.166665211f)));
  y = fma(y, r, ((float4)(0.49999994f)));
  const int4 n = as_int4(m) - (int4)(0x4b400000), half_n = n >> (int4)(1);
  const float4 first = as_float4((half_n + (int4)(127)) << (int4)(23)), second = as_float4((n - half_n + (int4)(127)) << (int4)(23));
  return (fma(y, r * r, r) + ((float4)(1.0f))) * first * second;
}

// s * op_own_exp_f32x4(m - n) + t * op_own_exp_f32x4(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float4 op_softmax_sum_f32x4(float4 m, float4 s, float4 k, float4 t) {
  const float4 e = m == k ? ((float4)(1.0f)) : op_own_exp_f32x4(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float2 op_maximum_f32x2(float2 a, float2 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// e^x = 2^n e^r, r = x - n ln 2 in two steps, e^r - 1 - r = r^2 * polynomial. The integer n comes from the bits of m: rint() is slow on some runtimes.
// 2^n in two factors reaches subnormal numbers and infinity.
OCL_INLINE float2 op_own_exp_f32x2(float2 x) {
  const float2 low = x < ((float2)(-104.0f)) ? ((float2)(-104.0f)) : x, c = low > ((float2)(89.0f)) ? ((float2)(89.0f)) : low;
  const float2 m = fma(c, ((float2)(1.44269504f)), ((float2)(12582912.0f))), z = m - ((float2)(12582912.0f));
  const float2 r = fma(z, ((float2)(2.12194440e-4f)), fma(z, ((float2)(-0.693359375f)), c));
  float2 y = ((float2)(1.38201076e-3f));
  y = fma(y, r, ((float2)(8.36868491e-3f)));
  y = fma(y, r, ((float2)(4.16682735e-2f)));
  y = fma(y, r, ((float2)(0.166665211f)));
  y = fma(y, r, ((float2)(0.49999994f)));
  const int2 n = as_int2(m) - (int2)(0x4b400000), half_n = n >> (int2)(1);
  const float2 first = as_float2((half_n + (int2)(127)) << (int2)(23)), second = as_float2((n - half_n + (int2)(127)) << (int2)(23));
  return (fma(y, r * r, r) + ((float2)(1.0f))) * first * second;
}

// s * op_own_exp_f32x2(m - n) + t * op_own_exp_f32x2(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float2 op_softmax_sum_f32x2(float2 m, float2 s, float2 k, float2 t) {
  const float2 e = m == k ? ((float2)(1.0f)) : op_own_exp_f32x2(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void softmax_87676d60c552(
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
#pragma clang loop vectorize(disable)
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
    const float v4 = a10 - a10;
    const float v5 = a11 + v4;
    {
      int r0 = 0;
      for (; r0 + 16 <= 1000; r0 += 16) {
        const float16 v6 = vload16(0, in0 + i0 * 1000 + r0);
        const float16 v7 = v6 * (float16)(0x1p-3f);
        const float16 v8 = v7 - (float16)(a10);
        const float16 v9 = op_own_exp_f32x16(v8);
        const float16 v10 = v9 / (float16)(v5);
        vstore16(v10, 0, out0 + i0 * 1000 + r0);
      }
#pragma clang loop vectorize(disable)
      for (; r0 < 1000; ++r0) {
        const float v11 = in0[i0 * 1000 + r0];
        const float v12 = v11 * 0x1p-3f;
        const float v13 = v12 - a10;
        const float v14 = op_own_exp_f32(v13);
        const float v15 = v14 / v5;
        out0[i0 * 1000 + r0] = v15;
      }
    }
  }
}
