// reduction, groups 4 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float4 op_u8_value_f32x4(uchar4 x) {
  return convert_float4(x);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void sum_25c5782a6b2b(
    __global const float* in0, const ulong in0_offset,
    __global const uchar* in1, const ulong in1_offset,
    __global const float* in2, const ulong in2_offset,
    __global float* out0, const ulong out0_offset) {
  __local float shared_f32_0[256];
  in0 += in0_offset;
  in1 += in1_offset;
  in2 += in2_offset;
  out0 += out0_offset;
  const int item = get_local_id(0);
  const int lane = item % 32;
  const int row = (int)get_group_id(0) * 8 + item / 32;
  const int i0 = row;
  if (((in0_offset | in1_offset | in2_offset | out0_offset) & 3) == 0) {
    const int first0 = lane * 4;
    const float4 v0 = *(__global const float4*)(in0 + first0 * 2);
    const float4 v1 = *(__global const float4*)(in0 + (first0 * 2 + 4));
    const float4 v2 = (float4)(v0.even, v1.even);
    const float4 v3 = *(__global const float4*)(in0 + first0 * 2);
    const float4 v4 = *(__global const float4*)(in0 + (first0 * 2 + 4));
    const float4 v5 = (float4)(v3.odd, v4.odd);
    const float4 v6 = v5 * (float4)(0x1p-4f);
    const float4 v7 = v2 - v6;
    const uchar4 v8 = *(__global const uchar4*)(in1 + (i0 * 128 + first0));
    const uchar4 v9 = v8 & (uchar4)(15);
    const float4 v10 = op_u8_value_f32x4(v9);
    const float4 v11 = op_u8_value_f32x4(v8);
    const float4 v12 = v2 + v5;
    const float4 v13 = v12 * (float4)((-8.0f));
    const float4 v14 = fma(v6, v11, v13);
    const float4 v15 = fma(v7, v10, v14);
    const float v16 = in2[i0 * 2 + first0 / 64];
    const float4 v17 = v15 * (float4)(v16);
    float4 a0 = (float4)(0);
    a0 = a0 + v17;
    float2 a1 = a0.lo + a0.hi;
    float a2 = a1.s0 + a1.s1;
    shared_f32_0[item] = a2;
    barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
    if (lane < 4) {
      a2 = a2 + shared_f32_0[item + 4];
      a2 = a2 + shared_f32_0[item + 8];
      a2 = a2 + shared_f32_0[item + 12];
      a2 = a2 + shared_f32_0[item + 16];
      a2 = a2 + shared_f32_0[item + 20];
      a2 = a2 + shared_f32_0[item + 24];
      a2 = a2 + shared_f32_0[item + 28];
      shared_f32_0[item] = a2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    a2 = shared_f32_0[(item & -32) + 0];
    a2 = a2 + shared_f32_0[(item & -32) + 1];
    a2 = a2 + shared_f32_0[(item & -32) + 2];
    a2 = a2 + shared_f32_0[(item & -32) + 3];
    if (lane == 0) {
      out0[i0] = a2;
    }
  } else {
    float a3 = 0;
    for (int r0 = lane; r0 < 128; r0 += 32) {
      const float v18 = in0[r0 * 2];
      const float v19 = in0[r0 * 2 + 1];
      const float v20 = v19 * 0x1p-4f;
      const float v21 = v18 - v20;
      const uchar v22 = in1[i0 * 128 + r0];
      const uchar v23 = (uchar)(v22 & 15);
      const float v24 = (float)v23;
      const float v25 = (float)v22;
      const float v26 = v18 + v19;
      const float v27 = v26 * (-8.0f);
      const float v28 = fma(v20, v25, v27);
      const float v29 = fma(v21, v24, v28);
      const float v30 = in2[i0 * 2 + r0 / 64];
      const float v31 = v29 * v30;
      a3 = a3 + v31;
    }
    shared_f32_0[item] = a3;
    barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
    for (int step = 16; step > 0; step /= 2) {
      if (lane < step) {
        a3 = a3 + shared_f32_0[item + step];
        shared_f32_0[item] = a3;
      }
      barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    }
    a3 = shared_f32_0[(item & -32)];
    barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again
    if (lane == 0) {
      out0[i0] = a3;
    }
  }
}
