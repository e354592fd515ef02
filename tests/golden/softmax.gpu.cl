// reduction, groups 64 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float4 op_maximum_f32x4(float4 a, float4 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

OCL_INLINE float2 op_maximum_f32x2(float2 a, float2 b) {
  return (isnan(a) | (a > b)) ? a : b;
}

OCL_INLINE float op_maximum_f32(float a, float b) {
  return (isnan(a) | (a > b)) ? a : b;
}

OCL_INLINE float op_softmax_sum_f32(float m, float s, float k, float t) {
  const float e = m == k ? 1.0f : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void softmax_288eaac343e4(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset) {
  __local float shared_f32_0[256];
  __local float shared_f32_1[256];
  in0 += in0_offset;
  out0 += out0_offset;
  const int item = get_local_id(0);
  const int lane = item;
  const int row = get_group_id(0);
  const int i0 = row;
  if (((in0_offset | out0_offset) & 3) == 0) {
    const int inside0 = lane * 4 < 1000;
    const int first0 = min(lane * 4, 996);
    const float4 v0 = *(__global const float4*)(in0 + i0 * 1000 + first0);
    const float4 v1 = v0 * (float4)(0x1p-3f);
    float4 a0 = (float4)(-INFINITY);
    if (inside0) {
      a0 = op_maximum_f32x4(a0, v1);
    }
    float2 a1 = op_maximum_f32x2(a0.lo, a0.hi);
    float a2 = op_maximum_f32(a1.s0, a1.s1);
    shared_f32_0[item] = a2;
    barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
    if (lane < 32) {
      a2 = op_maximum_f32(a2, shared_f32_0[item + 32]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 64]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 96]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 128]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 160]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 192]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 224]);
      shared_f32_0[item] = a2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    if (lane < 4) {
      a2 = op_maximum_f32(a2, shared_f32_0[item + 4]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 8]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 12]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 16]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 20]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 24]);
      a2 = op_maximum_f32(a2, shared_f32_0[item + 28]);
      shared_f32_0[item] = a2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    a2 = shared_f32_0[0];
    a2 = op_maximum_f32(a2, shared_f32_0[1]);
    a2 = op_maximum_f32(a2, shared_f32_0[2]);
    a2 = op_maximum_f32(a2, shared_f32_0[3]);
    const float c0 = a2;
    float4 a3 = (float4)(0);
    if (inside0) {
      a3 = v1 == (float4)(c0) ? a3 + 1 : a3 + exp(v1 - (float4)(c0));
    }
    float2 a4 = a3.lo + a3.hi;
    float a5 = a4.s0 + a4.s1;
    shared_f32_1[item] = a5;
    barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
    if (lane < 32) {
      a5 = a5 + shared_f32_1[item + 32];
      a5 = a5 + shared_f32_1[item + 64];
      a5 = a5 + shared_f32_1[item + 96];
      a5 = a5 + shared_f32_1[item + 128];
      a5 = a5 + shared_f32_1[item + 160];
      a5 = a5 + shared_f32_1[item + 192];
      a5 = a5 + shared_f32_1[item + 224];
      shared_f32_1[item] = a5;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    if (lane < 4) {
      a5 = a5 + shared_f32_1[item + 4];
      a5 = a5 + shared_f32_1[item + 8];
      a5 = a5 + shared_f32_1[item + 12];
      a5 = a5 + shared_f32_1[item + 16];
      a5 = a5 + shared_f32_1[item + 20];
      a5 = a5 + shared_f32_1[item + 24];
      a5 = a5 + shared_f32_1[item + 28];
      shared_f32_1[item] = a5;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    a5 = shared_f32_1[0];
    a5 = a5 + shared_f32_1[1];
    a5 = a5 + shared_f32_1[2];
    a5 = a5 + shared_f32_1[3];
    const float v2 = c0 - c0;
    const float v3 = a5 + v2;
    const float4 v4 = v0 * (float4)(0x1p-3f);
    const float4 v5 = v4 - (float4)(c0);
    const float4 v6 = exp(v5);
    const float4 v7 = v6 / (float4)(v3);
    if (inside0) {
      *(__global float4*)(out0 + i0 * 1000 + first0) = v7;
    }
  } else {
    float a6 = -INFINITY;
    float a7 = 0;
    for (int r0 = lane; r0 < 1000; r0 += 256) {
      const float v8 = in0[i0 * 1000 + r0];
      const float v9 = v8 * 0x1p-3f;
      const float n0 = op_maximum_f32(a6, v9);
      const float n1 = op_softmax_sum_f32(a6, a7, v9, 1);
      a6 = n0;
      a7 = n1;
    }
    shared_f32_0[item] = a6;
    shared_f32_1[item] = a7;
    barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
    for (int step = 128; step > 0; step /= 2) {
      if (lane < step) {
        const float n2 = op_maximum_f32(a6, shared_f32_0[item + step]);
        const float n3 = op_softmax_sum_f32(a6, a7, shared_f32_0[item + step], shared_f32_1[item + step]);
        a6 = n2;
        a7 = n3;
        shared_f32_0[item] = a6;
        shared_f32_1[item] = a7;
      }
      barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    }
    a6 = shared_f32_0[0];
    a7 = shared_f32_1[0];
    barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again
    const float v10 = a6 - a6;
    const float v11 = a7 + v10;
    for (int r0 = lane; r0 < 1000; r0 += 256) {
      const float v12 = in0[i0 * 1000 + r0];
      const float v13 = v12 * 0x1p-3f;
      const float v14 = v13 - a6;
      const float v15 = exp(v14);
      const float v16 = v15 / v11;
      out0[i0 * 1000 + r0] = v16;
    }
  }
}
