// reduction, groups 8 x 1 x 1, local [1, 1, 1]
#pragma OPENCL FP_CONTRACT OFF
//@kernel
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void welford_995dd61d6b87(
    __global const float* in0, const ulong in0_offset,
    __global float* out0, const ulong out0_offset,
    __global float* out1, const ulong out1_offset,
    const int row_chunk) {
  in0 += in0_offset;
  out0 += out0_offset;
  out1 += out1_offset;
  const int first = (int)get_group_id(0) * row_chunk;
  const int last = min(first + (int)row_chunk, (int)(16));
  for (int row = first; row < last; ++row) {
    const int i0 = row;
    float16 a0 = (float16)(0);
    float16 a1 = (float16)(0);
    float16 a2 = (float16)(0);
    for (int r0 = 0; r0 < 8; ++r0) {
      for (int r1 = 0; r1 + 16 <= 784;) {
        const int end0 = min(r1 + (r1 == 0 ? 128 : 1024), (int)(784 - 15));
        float16 a3 = a0;
        float16 a4 = (float16)(0);
        float16 a5 = (float16)(0);
        int k0 = (int)a2.s0;
        for (; r1 < end0; r1 += 16) {
          const float16 v0 = vload16(0, in0 + i0 * 784 + r0 * 12544 + r1);
          a3 = k0 == 0 ? v0 : a3;
          k0 += 1;
          const float16 d0 = v0 - a3;
          a4 += d0;
          a5 = fma(d0, d0, a5);
        }
        const float16 n0 = (float16)(k0), n1 = a4 / n0, n2 = a5 - a4 * n1;
        a0 = a3 + n1;
        a1 += n2 < 0 ? (float16)(0) : n2;
        a2 = n0;
      }
    }
    float8 a6 = a0.lo + a0.hi;
    float4 a7 = a6.lo + a6.hi;
    float2 a8 = a7.lo + a7.hi;
    float a9 = a8.s0 + a8.s1;
    a9 /= 16;
    const float16 d1 = a0 - a9, d2 = a1 + d1 * d1 * a2;
    float8 a10 = d2.lo + d2.hi;
    float4 a11 = a10.lo + a10.hi;
    float2 a12 = a11.lo + a11.hi;
    float a13 = a12.s0 + a12.s1;
    float a14 = a2.s0 * 16;
    out0[i0] = a9;
    const float v1 = a13 / 6272.0f;
    out1[i0] = v1;
  }
}
