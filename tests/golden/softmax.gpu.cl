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

OCL_INLINE float4 op_softmax_sum_f32x4(float4 m, float4 s, float4 k, float4 t) {
  const float4 e = m == k ? ((float4)(1.0f)) : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float op_softmax_sum_f32(float m, float s, float k, float t) {
  const float e = m == k ? 1.0f : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

OCL_INLINE float2 op_softmax_sum_f32x2(float2 m, float2 s, float2 k, float2 t) {
  const float2 e = m == k ? ((float2)(1.0f)) : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void softmax_3bb521401c5a(
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
    const float4 v0 = *(__global const float4*)(in0 + (i0 * 1000 + first0));
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
      *(__global float4*)(out0 + (i0 * 1000 + first0)) = v7;
    }
  } else {
    const int first = (((in0_offset ^ out0_offset)) & 3) == 0 ? min((int)(int)((0 - (ulong)(i0 * 1000) - in0_offset) & 3), (int)(1000)) : 0;
    const int last = first + ((((in0_offset ^ out0_offset)) & 3) == 0 ? (1000 - first) / 4 * 4 : 0);
    float a6 = -INFINITY;
    float a7 = 0;
    float4 a8 = (float4)(-INFINITY);
    float4 a9 = (float4)(0);
    {
      int vector0 = first + lane * 4;
      for (; vector0 < last; vector0 += 1024) {
        const float4 v10 = *(__global const float4*)(in0 + (i0 * 1000 + vector0));
        const float4 v11 = v10 * (float4)(0x1p-3f);
        const float4 n2 = op_maximum_f32x4(a8, v11);
        const float4 n3 = op_softmax_sum_f32x4(a8, a9, v11, 1);
        a8 = n2;
        a9 = n3;
      }
    }
    for (int edge0 = lane; edge0 < 1000 - (last - first); edge0 += 256) {
      const int r0 = edge0 < first ? edge0 : edge0 + (last - first);
      const float v12 = in0[i0 * 1000 + r0];
      const float v13 = v12 * 0x1p-3f;
      const float n4 = op_maximum_f32(a6, v13);
      const float n5 = op_softmax_sum_f32(a6, a7, v13, 1);
      a6 = n4;
      a7 = n5;
    }
    float2 a10 = op_maximum_f32x2(a8.lo, a8.hi);
    float2 a11 = op_softmax_sum_f32x2(a8.lo, a9.lo, a8.hi, a9.hi);
    float a12 = op_maximum_f32(a10.s0, a10.s1);
    float a13 = op_softmax_sum_f32(a10.s0, a11.s0, a10.s1, a11.s1);
    const float n6 = op_maximum_f32(a6, a12);
    const float n7 = op_softmax_sum_f32(a6, a7, a12, a13);
    a6 = n6;
    a7 = n7;
    shared_f32_0[item] = a6;
    shared_f32_1[item] = a7;
    barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
    for (int step = 128; step > 0; step /= 2) {
      if (lane < step) {
        const float n8 = op_maximum_f32(a6, shared_f32_0[item + step]);
        const float n9 = op_softmax_sum_f32(a6, a7, shared_f32_0[item + step], shared_f32_1[item + step]);
        a6 = n8;
        a7 = n9;
        shared_f32_0[item] = a6;
        shared_f32_1[item] = a7;
      }
      barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
    }
    a6 = shared_f32_0[0];
    a7 = shared_f32_1[0];
    barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again
    const float v14 = a6 - a6;
    const float v15 = a7 + v14;
    {
      int vector1 = first + lane * 4;
      for (; vector1 < last; vector1 += 1024) {
        const float4 v21 = *(__global const float4*)(in0 + (i0 * 1000 + vector1));
        const float4 v22 = v21 * (float4)(0x1p-3f);
        const float4 v23 = v22 - (float4)(a6);
        const float4 v24 = exp(v23);
        const float4 v25 = v24 / (float4)(v15);
        *(__global float4*)(out0 + (i0 * 1000 + vector1)) = v25;
      }
    }
    for (int edge1 = lane; edge1 < 1000 - (last - first); edge1 += 256) {
      const int r1 = edge1 < first ? edge1 : edge1 + (last - first);
      const float v26 = in0[i0 * 1000 + r1];
      const float v27 = v26 * 0x1p-3f;
      const float v28 = v27 - a6;
      const float v29 = exp(v28);
      const float v30 = v29 / v15;
      out0[i0 * 1000 + r1] = v30;
    }
  }
}
