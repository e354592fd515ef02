// batch, groups 3 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
static inline void batch_e45553b47ac9_0(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int count, const int column_chunk, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)group * column_chunk;
  const int end = min(begin + column_chunk, (int)(count));
  int i0 = begin;
  for (; i0 + 16 <= end; i0 += 16) {
    const float16 v0 = vload16(0, in0 + i0);
    const float16 v1 = v0 * (float16)(0x1.ccccccp-1f);
    const float16 v2 = v1 + (float16)(1.0f);
    vstore16(v2, 0, out0 + i0);
  }
#pragma clang loop vectorize(disable)
  for (; i0 < end; ++i0) {
    const float v3 = in0[i0];
    const float v4 = v3 * 0x1.ccccccp-1f;
    const float v5 = v4 + 1.0f;
    out0[i0] = v5;
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void batch_e45553b47ac9(
    __global const float* m_in0, const ulong m_in0_offset,
    __global float* m_out0, const ulong m_out0_offset,
    __global const float* m_in1, const ulong m_in1_offset,
    __global float* m_out1, const ulong m_out1_offset,
    __global const float* m_in2, const ulong m_in2_offset,
    __global float* m_out2, const ulong m_out2_offset,
    const int m_end0,
    const int m_count_0,
    const int m_column_chunk_0,
    const int m_end1,
    const int m_count_1,
    const int m_column_chunk_1,
    const int m_count_2,
    const int m_column_chunk_2) {
  const int at = get_group_id(0);
  __global const float* in0; ulong in0_offset;
  __global float* out0; ulong out0_offset;
  int count;
  int column_chunk;
  int first;
  if (at < m_end0) {
    in0 = m_in0; in0_offset = m_in0_offset;
    out0 = m_out0; out0_offset = m_out0_offset;
    count = m_count_0;
    column_chunk = m_column_chunk_0;
    first = 0;
  }
  else {
    if (at < m_end1) {
      in0 = m_in1; in0_offset = m_in1_offset;
      out0 = m_out1; out0_offset = m_out1_offset;
      count = m_count_1;
      column_chunk = m_column_chunk_1;
      first = m_end0;
    }
    else {
      in0 = m_in2; in0_offset = m_in2_offset;
      out0 = m_out2; out0_offset = m_out2_offset;
      count = m_count_2;
      column_chunk = m_column_chunk_2;
      first = m_end1;
    }
  }
  batch_e45553b47ac9_0(in0, in0_offset, out0, out0_offset, count, column_chunk, at - first);
}
