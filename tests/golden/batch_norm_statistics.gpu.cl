// reduction, groups 64 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define OCL_INLINE static inline

// Weight of the part of b elements when it is merged with a elements.
OCL_INLINE float op_welford_ratio_f32(float b, float a) {
  return b == 0.0f ? 0.0f : b / (a + b);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void welford_8487b3af4443(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset,
    __global float* out1, const ulong out1_offset,
    __global float* out2, const ulong out2_offset) {
  __local float shared_f32_0[256];
  __local float shared_f32_1[256];
  __local float shared_f32_2[256];
  in0 += in0_offset;
  out0 += out0_offset;
  out1 += out1_offset;
  out2 += out2_offset;
  const int item = get_local_id(0);
  const int lane = item % 128;
  const int row = (int)get_group_id(0) * 2 + item / 128;
  const int i0 = row;
  float a0 = 0;
  float a1 = 0;
  float a2 = 0;
  for (int r0 = lane; r0 < 784; r0 += 128) {
    const float v0 = in0[i0 * 784 + r0];
    const float n0 = a0 + (v0 - a0) / (a2 + 1);
    const float n1 = a1 + (v0 - a0) * (v0 - a0) * (a2 / (a2 + 1));
    const float n2 = a2 + 1;
    a0 = n0;
    a1 = n1;
    a2 = n2;
  }
  shared_f32_0[item] = a0;
  shared_f32_1[item] = a1;
  shared_f32_2[item] = a2;
  barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place
  for (int step = 64; step > 0; step /= 2) {
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
  a0 = shared_f32_0[item - lane];
  a1 = shared_f32_1[item - lane];
  a2 = shared_f32_2[item - lane];
  barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again
  if (lane == 0) {
    out0[i0] = a0;
    out1[i0] = a1;
    out2[i0] = a2;
  }
}

// reduction, groups 1 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#ifdef __clang__
#define OCL_UNROLL __attribute__((opencl_unroll_hint))
#else
#define OCL_UNROLL
#endif
#define OCL_INLINE static inline

// Weight of the part of b elements when it is merged with a elements.
OCL_INLINE float op_welford_ratio_f32(float b, float a) {
  return b == 0.0f ? 0.0f : b / (a + b);
}

//@kernel
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void welford_2bf11bcc3891(
    __global const float* in0, const ulong in0_offset,
    __global const float* in1, const ulong in1_offset,
    __global const float* in2, const ulong in2_offset,
    __global float* out0, const ulong out0_offset,
    __global float* out1, const ulong out1_offset) {
  in0 += in0_offset;
  in1 += in1_offset;
  in2 += in2_offset;
  out0 += out0_offset;
  out1 += out1_offset;
  for (int at = get_global_id(0); at < 16; at += get_global_size(0)) {
    const int i0 = at;
    float a0 = 0;
    float a1 = 0;
    float a2 = 0;
    OCL_UNROLL
    for (int r0 = 0; r0 < 8; ++r0) {
      const float v0 = in0[i0 + r0 * 16];
      const float v1 = in1[i0 + r0 * 16];
      const float v2 = in2[i0 + r0 * 16];
      const float n0 = a0 + (v0 - a0) * op_welford_ratio_f32(v2, a2);
      const float n1 = a1 + v1 + (v0 - a0) * (v0 - a0) * a2 * op_welford_ratio_f32(v2, a2);
      const float n2 = a2 + v2;
      a0 = n0;
      a1 = n1;
      a2 = n2;
    }
    out0[i0] = a0;
    const float v3 = a1 / 6272.0f;
    out1[i0] = v3;
  }
}
