// fft, groups 1 x 1 x 1, local [480, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME fft_40ee66570650
#define KERNEL_PARAMETERS __global const REAL* re, const ulong re_offset, const int O, const int P, const int Q, const long x_o, const long x_n, const long x_p, const long x_q
#define FORM 1
#define VW 2
#define STEPS(S) S(5, 1) S(3, 5) S(2, 15) 
#define LINES 32
#define ITEMS 480
#define POINTS 5
#define PADDED 1
#define COLUMNS_IN 0
#define COLUMNS_OUT 0
#define ROWS 1
#define EVEN 1
#define N 30
#define INPUT 1
#include "kernels/base/types.cl"  // sha256 850c689d5cdae272

#define EPILOGUE_PARAMS , __global float* restrict e_out0, const ulong e_out0_offset
#define EPILOGUE_FUNCTION_PARAMS , __global float* e_out0, const ulong e_out0_offset
#define EPILOGUE_PASS , e_out0, e_out0_offset
#define STORES_ALIGNED (((e_out0_offset) & 1) == 0)
OCL_INLINE void epilogue(const float acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  e_out0[i0 * 62 + i1] = acc;
}
#define STORE(acc, i0, i1) epilogue(acc, i0, i1 EPILOGUE_PASS)
OCL_INLINE void epilogue_a(const float2 acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  *(__global float2*)(e_out0 + (i0 * 62 + i1)) = acc;
}
#define STOREA(acc, i0, i1) epilogue_a(acc, i0, i1 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float2 acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  if (STORES_ALIGNED) {
    STOREA(acc, i0, i1);
    return;
  }
  e_out0 += e_out0_offset;
  vstore2(acc, 0, e_out0 + i0 * 62 + i1);
}
#define STOREV(acc, i0, i1) epilogue_v(acc, i0, i1 EPILOGUE_PASS)

#include "kernels/fft/butterfly.cl"  // sha256 a77d1dda376038ef

#include "kernels/fft/group.cl"  // sha256 4d7baae178a4f7b0
