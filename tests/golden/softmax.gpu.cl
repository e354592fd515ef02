// reduction, groups 32 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float op_maximum_f32(float a, float b) {
  return (isnan(a) | (a > b)) ? a : b;
}

// s * exp(m - n) + t * exp(k - n), n the larger of m and k: one of the two exponentials is 1, both are for equal infinities.
OCL_INLINE float op_softmax_sum_f32(float m, float s, float k, float t) {
  const float e = m == k ? 1.0f : exp(-fabs(k - m));
  return k > m ? s * e + t : s + t * e;
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void softmax_75123b26147c(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset) {
  __local float shared_f32_0[256];
  __local float shared_f32_1[256];
  in0 += in0_offset;
  out0 += out0_offset;
  const int item = get_local_id(0);
  const int lane = item % 128;
  const int row = (int)get_group_id(0) * 2 + item / 128;
  const int i0 = row;
  float a0 = -INFINITY;
  float a1 = 0;
  for (int r0 = lane; r0 < 1000; r0 += 128) {
    const float v0 = in0[i0 * 1000 + r0];
    const float v1 = v0 * 0x1p-3f;
    const float n0 = op_maximum_f32(a0, v1);
    const float n1 = op_softmax_sum_f32(a0, a1, v1, 1);
    a0 = n0;
    a1 = n1;
  }
  shared_f32_0[item] = a0;
  shared_f32_1[item] = a1;
  barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
  for (int step = 64; step > 0; step /= 2) {
    if (lane < step) {
      const float n2 = op_maximum_f32(a0, shared_f32_0[item + step]);
      const float n3 = op_softmax_sum_f32(a0, a1, shared_f32_0[item + step], shared_f32_1[item + step]);
      a0 = n2;
      a1 = n3;
      shared_f32_0[item] = a0;
      shared_f32_1[item] = a1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
  }
  a0 = shared_f32_0[item - lane];
  a1 = shared_f32_1[item - lane];
  barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again
  for (int r0 = lane; r0 < 1000; r0 += 128) {
    const float v2 = in0[i0 * 1000 + r0];
    const float v3 = v2 * 0x1p-3f;
    const float v4 = v3 - a0;
    const float v5 = exp(v4);
    const float v6 = v5 / a1;
    out0[i0 * 1000 + r0] = v6;
  }
}
