// pointwise, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pointwise_2f465b5a9b1b(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset,
    const int column_chunk) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)get_group_id(0) * column_chunk;
  const int end = min(begin + column_chunk, (int)(128));
  for (int i0 = begin; i0 < end; i0 += 16) {
    const int at0 = i0 * 2;
    const float16 v0 = (float16)(in0[at0], in0[at0 + 2], in0[at0 + 4], in0[at0 + 6], in0[at0 + 8], in0[at0 + 10], in0[at0 + 12], in0[at0 + 14], in0[at0 + 16], in0[at0 + 18], in0[at0 + 20], in0[at0 + 22], in0[at0 + 24], in0[at0 + 26], in0[at0 + 28], in0[at0 + 30]);
    const int at1 = i0 * 2 + 1;
    const float16 v1 = (float16)(in0[at1], in0[at1 + 2], in0[at1 + 4], in0[at1 + 6], in0[at1 + 8], in0[at1 + 10], in0[at1 + 12], in0[at1 + 14], in0[at1 + 16], in0[at1 + 18], in0[at1 + 20], in0[at1 + 22], in0[at1 + 24], in0[at1 + 26], in0[at1 + 28], in0[at1 + 30]);
    const float16 v2 = v1 * (float16)(0x1p-4f);
    const float16 v3 = v0 - v2;
    const float16 v4 = v0 + v1;
    const float16 v5 = v4 * (float16)((-8.0f));
    vstore16(v3, 0, out0 + i0);
    vstore16(v2, 0, out0 + i0 + 128);
    vstore16(v5, 0, out0 + i0 + 256);
  }
}

// reduction, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float16 op_u8_value_f32x16(uchar16 x) {
  return convert_float16(x);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sum_c641841afb5b(
    __global const float* in0, const ulong in0_offset,
    __global const uchar* in1, const ulong in1_offset,
    __global const float* in2, const ulong in2_offset,
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
      const float16 v0 = vload16(0, in0 + r0);
      const uchar16 v1 = vload16(0, in1 + i0 * 128 + r0);
      const uchar16 v2 = v1 & (uchar16)(15);
      const float16 v3 = op_u8_value_f32x16(v2);
      const float16 v4 = vload16(0, in0 + r0 + 128);
      const float16 v5 = op_u8_value_f32x16(v1);
      const float16 v6 = vload16(0, in0 + r0 + 256);
      const float16 v7 = fma(v4, v5, v6);
      const float16 v8 = fma(v0, v3, v7);
      const float v9 = in2[i0 * 2 + r0 / 64];
      const float16 v10 = v8 * (float16)(v9);
      a0 = a0 + v10;
    }
    float8 a1 = a0.lo + a0.hi;
    float4 a2 = a1.lo + a1.hi;
    float2 a3 = a2.lo + a2.hi;
    float a4 = a3.s0 + a3.s1;
    out0[i0] = a4;
  }
}
