// pointwise, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pointwise_4bf277f32326(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset,
    const int row_chunk) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int first = (int)get_group_id(1) * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(2));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    for (int i1 = 0; i1 < 128; i1 += 16) {
      const int at0 = i0 + i1 * 2;
      const float16 v0 = (float16)(in0[at0], in0[at0 + 2], in0[at0 + 4], in0[at0 + 6], in0[at0 + 8], in0[at0 + 10], in0[at0 + 12], in0[at0 + 14], in0[at0 + 16], in0[at0 + 18], in0[at0 + 20], in0[at0 + 22], in0[at0 + 24], in0[at0 + 26], in0[at0 + 28], in0[at0 + 30]);
      vstore16(v0, 0, out0 + i0 * 128 + i1);
    }
  }
}

// reduction, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE uchar16 op_shr_u8x16(uchar16 a, uchar16 b) {
  const uchar16 width = (uchar16)(sizeof(a) / 16 * 8);
  const uchar16 out = a < (uchar16)(0) ? (uchar16)(-1) : (uchar16)(0);
  return ((b < (uchar16)(0)) | (b >= width)) ? out : (uchar16)(a >> (b & (uchar16)(width - (uchar16)(1))));
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sum_53309b30cbe0(
    __global const float* in0, const ulong in0_offset,
    __global const float* in1, const ulong in1_offset,
    __global const uchar* in2, const ulong in2_offset,
    __global float* out0, const ulong out0_offset,
    const int row_chunk) {
  in0 += in0_offset;
  in1 += in1_offset;
  in2 += in2_offset;
  out0 += out0_offset;
  const int first = (int)get_group_id(0) * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(32));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    float16 a0 = (float16)(0);
    for (int r0 = 0; r0 + 16 <= 128; r0 += 16) {
      const float16 v0 = vload16(0, in0 + r0 + 128);
      const float v1 = in1[i0 * 2 + r0 / 64];
      const uchar16 v2 = vload16(0, in2 + i0 * 128 + r0);
      const uchar16 v3 = op_shr_u8x16(v2, (uchar16)(4));
      const float16 v4 = convert_float16(v3);
      const float16 v5 = v4 - (float16)(8.0f);
      const float16 v6 = (float16)(v1) * v5;
      const float16 v7 = vload16(0, in0 + r0);
      const uchar16 v8 = v2 & (uchar16)(15);
      const float16 v9 = convert_float16(v8);
      const float16 v10 = v9 - (float16)(8.0f);
      const float16 v11 = v10 * (float16)(v1);
      const float16 v12 = v7 * v11;
      const float16 v13 = fma(v0, v6, v12);
      a0 = a0 + v13;
    }
    float8 a1 = a0.lo + a0.hi;
    float4 a2 = a1.lo + a1.hi;
    float2 a3 = a2.lo + a2.hi;
    float a4 = a3.s0 + a3.s1;
    out0[i0] = a4;
  }
}
