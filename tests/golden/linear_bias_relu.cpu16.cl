// pack, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME pack_fe38d21bbc95
#define KERNEL_PARAMETERS __global const IN_T* restrict b, const ulong b_offset, const int N, const int K, const int inner, const long b_outer, const long b_inner, const int b_row, const int b_col
#define VW 16
#define TN 64
#define K_RUN 128
#define B_LAYOUT 1
#include "kernels/base/types.cl"  // sha256 850c689d5cdae272

#define EPILOGUE_PARAMS , __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_FUNCTION_PARAMS , __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_PASS , e_out0, e_out0_offset, e_s0
OCL_INLINE void epilogue(const float acc, const int i0, const int i1, const int i2, const int i3 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  e_out0[e_s0 * i2 + i3] = acc;
}
#define STORE(acc, i0, i1, i2, i3) epilogue(acc, i0, i1, i2, i3 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float16 acc, const int i0, const int i1, const int i2, const int i3 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  vstore16(acc, 0, e_out0 + e_s0 * i2 + i3);
}
#define STOREV(acc, i0, i1, i2, i3) epilogue_v(acc, i0, i1, i2, i3 EPILOGUE_PASS)

#include "kernels/pack/item.cl"  // sha256 5d1604622a44d3a2

// gemm, groups 6 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME gemm_6218442aaabf
#define KERNEL_PARAMETERS __global const IN_T* restrict a, const ulong a_offset, __global const IN_T* restrict b, const ulong b_offset, const int M, const int N, const int K, const int inner, const long a_outer, const long a_inner, const int a_row, const int a_col, const long b_outer, const long b_inner, const int b_row, const int b_col
#define VW 16
#define MR 6
#define NV 4
#define MT 1
#define A_COL_MAJOR 0
#define B_IN_PLACE 0
#define WHOLE_VECTORS 1
#define PREFETCHES 1
#define PREFETCH_A 1
#include "kernels/base/types.cl"  // sha256 850c689d5cdae272

OCL_INLINE float op_relu_f32(float x) {
  return x < 0.0f ? 0.0f : x;
}

OCL_INLINE float16 op_relu_f32x16(float16 x) {
  return x < ((float16)(0.0f)) ? ((float16)(0.0f)) : x;
}

#define EPILOGUE_PARAMS , __global const float* e_in0, const ulong e_in0_offset, __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_FUNCTION_PARAMS , __global const float* e_in0, const ulong e_in0_offset, __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_PASS , e_in0, e_in0_offset, e_out0, e_out0_offset, e_s0
OCL_INLINE void epilogue(const float acc, const int i0, const int i1, const int i2 EPILOGUE_PARAMS) {
  e_in0 += e_in0_offset;
  e_out0 += e_out0_offset;
  const float v0 = e_in0[i2];
  const float v1 = v0 + acc;
  const float v2 = op_relu_f32(v1);
  e_out0[e_s0 * i1 + i2] = v2;
}
#define STORE(acc, i0, i1, i2) epilogue(acc, i0, i1, i2 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float16 acc, const int i0, const int i1, const int i2 EPILOGUE_PARAMS) {
  e_in0 += e_in0_offset;
  e_out0 += e_out0_offset;
  const float16 v3 = vload16(0, e_in0 + i2);
  const float16 v4 = v3 + acc;
  const float16 v5 = op_relu_f32x16(v4);
  vstore16(v5, 0, e_out0 + e_s0 * i1 + i2);
}
#define STOREV(acc, i0, i1, i2) epilogue_v(acc, i0, i1, i2 EPILOGUE_PASS)

#include "kernels/gemm/item.cl"  // sha256 a8f452dc6d9b745a
