// gemm, groups 2 x 1 x 1, local [64, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME gemm_06bf4fb47f87
#define KERNEL_PARAMETERS __global const IN_T* a, const ulong a_offset, __global const IN_T* b, const ulong b_offset, const int M, const int N, const int K, const int inner, const long a_outer, const long a_inner, const long a_row, const long a_col, const long b_outer, const long b_inner, const long b_row, const long b_col
#define VW 4
#define TILE_M 16
#define TILE_N 64
#define TILE_K 16
#define SUM_STEPS 0
#define ITEM_M 4
#define ITEM_N 4
#define MULTIPLY_DEPTH 2
#define A_K_MAJOR 1
#define B_K_MAJOR 1
#define A_VEC4 1
#define B_VEC4 1
#define ALIGNED_BASES 0
#include "kernels/base/types.cl"  // sha256 850c689d5cdae272

OCL_INLINE float op_relu_f32(float x) {
  return x < 0.0f ? 0.0f : x;
}

OCL_INLINE float4 op_relu_f32x4(float4 x) {
  return x < ((float4)(0.0f)) ? ((float4)(0.0f)) : x;
}

#define EPILOGUE_PARAMS , __global const float* restrict e_in0, const ulong e_in0_offset, __global float* restrict e_out0, const ulong e_out0_offset
#define EPILOGUE_FUNCTION_PARAMS , __global const float* e_in0, const ulong e_in0_offset, __global float* e_out0, const ulong e_out0_offset
#define EPILOGUE_PASS , e_in0, e_in0_offset, e_out0, e_out0_offset
#define STORES_ALIGNED (((e_in0_offset | e_out0_offset) & 3) == 0)
OCL_INLINE void epilogue(const float acc, const int i0, const int i1, const int i2 EPILOGUE_PARAMS) {
  e_in0 += e_in0_offset;
  e_out0 += e_out0_offset;
  const float v0 = e_in0[i2];
  const float v1 = v0 + acc;
  const float v2 = op_relu_f32(v1);
  e_out0[i1 * 64 + i2] = v2;
}
#define STORE(acc, i0, i1, i2) epilogue(acc, i0, i1, i2 EPILOGUE_PASS)
OCL_INLINE void epilogue_a(const float4 acc, const int i0, const int i1, const int i2 EPILOGUE_PARAMS) {
  e_in0 += e_in0_offset;
  e_out0 += e_out0_offset;
  const float4 v3 = *(__global const float4*)(e_in0 + i2);
  const float4 v4 = v3 + acc;
  const float4 v5 = op_relu_f32x4(v4);
  *(__global float4*)(e_out0 + (i1 * 64 + i2)) = v5;
}
#define STOREA(acc, i0, i1, i2) epilogue_a(acc, i0, i1, i2 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float4 acc, const int i0, const int i1, const int i2 EPILOGUE_PARAMS) {
  if (STORES_ALIGNED) {
    STOREA(acc, i0, i1, i2);
    return;
  }
  e_in0 += e_in0_offset;
  e_out0 += e_out0_offset;
  const float4 v6 = vload4(0, e_in0 + i2);
  const float4 v7 = v6 + acc;
  const float4 v8 = op_relu_f32x4(v7);
  vstore4(v8, 0, e_out0 + i1 * 64 + i2);
}
#define STOREV(acc, i0, i1, i2) epilogue_v(acc, i0, i1, i2 EPILOGUE_PASS)

#include "kernels/gemm/group.cl"  // sha256 78122fdcc35e2ed2
