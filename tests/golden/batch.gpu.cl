// batch, groups 3 x 1 x 1, local [256, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
static inline void batch_6d6586029ba6_0(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int count, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)group * 2048, end = min(begin + 2048, (int)(count));
  int at = begin + (int)get_local_id(0);
  if (((in0_offset | out0_offset) & 3) == 0) {
    for (at = begin / 4 + (int)get_local_id(0); at < end / 4; at += 256) {
      const int i0 = at;
      const int i0_first = i0 * 4;
      const float4 v0 = *(__global const float4*)(in0 + i0_first);
      const float4 v1 = v0 * (float4)(0x1.ccccccp-1f);
      const float4 v2 = v1 + (float4)(1.0f);
      *(__global float4*)(out0 + i0_first) = v2;
    }
    at = end / 4 * 4 + (int)get_local_id(0);
  }
  for (; at < end; at += 256) {
    const int i0 = at;
    const float v3 = in0[i0];
    const float v4 = v3 * 0x1.ccccccp-1f;
    const float v5 = v4 + 1.0f;
    out0[i0] = v5;
  }
}

static inline void batch_6d6586029ba6_1(__global const float* in0, const ulong in0_offset, __global float* out0, const ulong out0_offset, const int count, const int group) {
  in0 += in0_offset;
  out0 += out0_offset;
  const int begin = (int)group * 2048, end = min(begin + 2048, (int)(count));
  int at = begin + (int)get_local_id(0);
  for (; at < end; at += 256) {
    const int i0 = at;
    const float v0 = in0[i0];
    const float v1 = v0 * 0x1.ccccccp-1f;
    const float v2 = v1 + 1.0f;
    out0[i0] = v2;
  }
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void batch_6d6586029ba6(
    __global const float* m_in0, const ulong m_in0_offset,
    __global float* m_out0, const ulong m_out0_offset,
    __global const float* m_in1, const ulong m_in1_offset,
    __global float* m_out1, const ulong m_out1_offset,
    __global const float* m_in2, const ulong m_in2_offset,
    __global float* m_out2, const ulong m_out2_offset,
    const int m_end0,
    const int m_end1,
    const int m_count_0,
    const int m_count_1,
    const int m_count_2) {
  const int at = get_group_id(0);
  if (at < m_end0) {
    __global const float* in0; ulong in0_offset;
    __global float* out0; ulong out0_offset;
    int count;
    int first;
    if (at < m_end1) {
      in0 = m_in0; in0_offset = m_in0_offset;
      out0 = m_out0; out0_offset = m_out0_offset;
      count = m_count_0;
      first = 0;
    }
    else {
      in0 = m_in1; in0_offset = m_in1_offset;
      out0 = m_out1; out0_offset = m_out1_offset;
      count = m_count_1;
      first = m_end1;
    }
    batch_6d6586029ba6_0(in0, in0_offset, out0, out0_offset, count, at - first);
    return;
  }
  {
    batch_6d6586029ba6_1(m_in2, m_in2_offset, m_out2, m_out2_offset, m_count_2, at - m_end0);
  }
}
