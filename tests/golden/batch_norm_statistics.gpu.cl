// reduction, groups 16 x 1 x 1, local [1024, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

OCL_INLINE float op_welford_ratio_f32(float b, float a) {
  return b == 0.0f ? 0.0f : b / (a + b);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(1024, 1, 1)))
void welford_932e92e0d7e8(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset,
    __global float* out1, const ulong out1_offset) {
  __local float shared_f32_0[1024];
  __local float shared_f32_1[1024];
  __local float shared_f32_2[1024];
  in0 += in0_offset;
  out0 += out0_offset;
  out1 += out1_offset;
  const int item = get_local_id(0);
  const int lane = item;
  const int row = get_group_id(0);
  const int i0 = row;
  float a0 = 0;
  float a1 = 0;
  float a2 = 0;
  for (int block0 = lane; block0 < 6272; block0 += 131072) {
    const int end0 = min(block0 + 131072, (int)(6272));
    float a3 = a0;
    float a4 = 0;
    float a5 = 0;
    int k0 = (int)a2;
    for (int flat0 = block0; flat0 < end0; flat0 += 1024) {
      const int r1 = (flat0 % 784);
      const int r0 = (flat0 / 784);
      const float v0 = in0[i0 * 784 + r0 * 12544 + r1];
      a3 = k0 == 0 ? v0 : a3;
      k0 += 1;
      const float d0 = v0 - a3;
      a4 += d0;
      a5 = fma(d0, d0, a5);
    }
    const float n0 = (float)(k0), n1 = a4 / n0, n2 = a5 - a4 * n1;
    a0 = a3 + n1;
    a1 += n2 < 0 ? 0 : n2;
    a2 = n0;
  }
  shared_f32_0[item] = a0;
  shared_f32_1[item] = a1;
  shared_f32_2[item] = a2;
  barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
  for (int step = 512; step > 0; step /= 2) {
    if (lane < step) {
      const float n3 = a0 + (shared_f32_0[item + step] - a0) * op_welford_ratio_f32(shared_f32_2[item + step], a2);
      const float n4 = a1 + shared_f32_1[item + step] + (shared_f32_0[item + step] - a0) * (shared_f32_0[item + step] - a0) * a2 * op_welford_ratio_f32(shared_f32_2[item + step], a2);
      const float n5 = a2 + shared_f32_2[item + step];
      a0 = n3;
      a1 = n4;
      a2 = n5;
      shared_f32_0[item] = a0;
      shared_f32_1[item] = a1;
      shared_f32_2[item] = a2;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it
  }
  a0 = shared_f32_0[0];
  a1 = shared_f32_1[0];
  a2 = shared_f32_2[0];
  barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again
  if (lane == 0) {
    out0[i0] = a0;
  }
  const float v1 = a1 / 6272.0f;
  if (lane == 0) {
    out1[i0] = v1;
  }
}
