// fft, groups 1 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL_NAME fft_210284f81593
#define KERNEL_PARAMETERS __global const REAL* restrict re, const ulong re_offset, const int O, const int P, const int Q, const int blocks_per_item, const long x_o, const long x_n, const long x_p, const long x_q
#define VW 16
#define LANES 16
#define COLUMNS 0
#define STEP_IN 0
#define LINES_IN 1
#define LINES_OUT 1
#define SPLIT 0
#define COPIES 2
#define STEPS(S) S(5, 1, 0, 0) S(3, 5, 1, 0) S(2, 15, 0, 20) 
#define ROOTS 1.0f, 0.0f, 1.0f, 0.0f, 0.9135454f, 0.40673664f, 0.6691306f, 0.7431448f, 0.6691306f, 0.7431448f, -0.104528464f, 0.9945219f, 0.309017f, 0.95105654f, -0.809017f, 0.58778524f, -0.104528464f, 0.9945219f, -0.9781476f, -0.20791169f, 1.0f, 0.0f, 0.9781476f, 0.20791169f, 0.9135454f, 0.40673664f, 0.809017f, 0.58778524f, 0.6691306f, 0.7431448f, 0.5f, 0.8660254f, 0.309017f, 0.95105654f, 0.104528464f, 0.9945219f, -0.104528464f, 0.9945219f, -0.309017f, 0.95105654f, -0.5f, 0.8660254f, -0.6691306f, 0.7431448f, -0.809017f, 0.58778524f, -0.9135454f, 0.40673664f, -0.9781476f, 0.20791169f
#define RESULT 1
#define N 30
#define INPUT 1
#define SCALE 0.5f
#include "kernels/base/types.cl"  // sha256 850c689d5cdae272

#define EPILOGUE_PARAMS , __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_FUNCTION_PARAMS , __global float* e_out0, const ulong e_out0_offset, const int e_s0
#define EPILOGUE_PASS , e_out0, e_out0_offset, e_s0
OCL_INLINE void epilogue(const float acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  e_out0[e_s0 * i0 + i1] = acc;
}
#define STORE(acc, i0, i1) epilogue(acc, i0, i1 EPILOGUE_PASS)
OCL_INLINE void epilogue_v(const float16 acc, const int i0, const int i1 EPILOGUE_PARAMS) {
  e_out0 += e_out0_offset;
  vstore16(acc, 0, e_out0 + e_s0 * i0 + i1);
}
#define STOREV(acc, i0, i1) epilogue_v(acc, i0, i1 EPILOGUE_PASS)

#include "kernels/fft/butterfly.cl"  // sha256 a77d1dda376038ef

#include "kernels/fft/item.cl"  // sha256 6b6e63e1697b9123

// batch, groups 2 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
static inline void batch_c46301954454_0(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int row_chunk, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int first = (int)group * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(3));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    for (int i1 = 0; i1 < 29; i1 += 1) {
      const float v0 = in0[i0 * 60 - i1 * 2 + 58];
      const float v1 = in0[i0 * 60 + i1 * 2 + 2];
      const float v2 = v0 - v1;
      const float v3 = -v2;
      const int v4 = (i1 + 8) / 15;
      const long v5 = (long)v4;
      const long v6 = v5 & 2L;
      const int v7 = 0L != v6;
      const long v8 = v5 & 1L;
      const int v9 = v8 != 0L;
      const int v10 = i1 * 4 - ((i1 + 8) / 15) * 60 + 4;
      const long v11 = (long)v10;
      const float v12 = (float)v11;
      const float v13 = v12 / 60.0f;
      const float v14 = v13 * 0x1.921fb6p+0f;
      const float v15 = cos(v14);
      const float v16 = -v13;
      const float v17 = fma(v16, 60.0f, v12);
      const float v18 = v17 * 0x1.aceeap-6f;
      const float v19 = sin(v14);
      const float v20 = v18 * v19;
      const float v21 = v15 - v20;
      const float v22 = v18 * v15;
      const float v23 = v19 + v22;
      const float v24 = v9 ? v21 : v23;
      const float v25 = -v24;
      const float v26 = v7 ? v25 : v24;
      const float v27 = -v26;
      const float v28 = -v23;
      const float v29 = v9 ? v28 : v21;
      const float v30 = -v29;
      const float v31 = v7 ? v30 : v29;
      const float v32 = in0[i0 * 60 + i1 * 2 + 3];
      const float v33 = in0[i0 * 60 - i1 * 2 + 59];
      const float v34 = v32 + v33;
      const float v35 = v31 * v34;
      const float v36 = fma(v3, v27, v35);
      const float v37 = v1 + v0;
      const float v38 = v36 + v37;
      const float v39 = v31 * v2;
      const float v40 = fma(v34, v27, v39);
      const float v41 = v32 - v33;
      const float v42 = v40 + v41;
      out0[i0 * 62 + i1 * 2 + 2] = v38;
      out0[i0 * 62 + i1 * 2 + 3] = v42;
    }
  }
}

static inline void batch_c46301954454_1(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int count, const int column_chunk, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)group * column_chunk;
  const int end = min(begin + column_chunk, (int)(count));
  for (int i0 = begin; i0 < end; i0 += 1) {
    const float v0 = in0[i0 * 60];
    const float v1 = in0[i0 * 60 + 1];
    const float v2 = v0 + v1;
    const float v3 = v2 * 2.0f;
    const float v4 = v0 - v1;
    const float v5 = v4 * 2.0f;
    out0[i0 * 62] = v3;
    out0[i0 * 62 + 1] = 0.0f;
    out0[i0 * 62 + 60] = v5;
    out0[i0 * 62 + 61] = 0.0f;
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void batch_c46301954454(
    __global const float* m_in0, const ulong m_in0_offset,
    __global float* m_out0, const ulong m_out0_offset,
    const int m_end0,
    const int m_row_chunk_0,
    const int m_count_0,
    const int m_column_chunk_0) {
  const int at = get_group_id(0);
  if (at < m_end0) {
    batch_c46301954454_0(m_in0, m_in0_offset, m_out0, m_out0_offset, m_row_chunk_0, at);
    return;
  }
  {
    batch_c46301954454_1(m_in0, m_in0_offset, m_out0, m_out0_offset, m_count_0, m_column_chunk_0, at - m_end0);
  }
}
