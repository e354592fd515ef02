// kernels/winograd/group.cl: 3x3 convolution with stride 1 on GPUs by Winograd F(2x2, 3x3), 2.25 times fewer
// multiplications. Source: Lavin & Gray 2016.
//
//   y = A^T [ sum over c of (G g G^T) * (B^T d B) ] A
//   g: filter 3x3, d: 4x4 patch of x, y: 2x2 outputs, *: elementwise over the 16 points
//
// The filters u = G g G^T are transformed before, by ordinary loops.
//
//   One work-group = 32 patches x CHANNELS channels k, all 16 points. A step has C_STEP input channels.
//     x patches --B^T d B--> v_tile [16][C_STEP][32]        \   16 products [32 x C_STEP] * [C_STEP x CHANNELS] in
//     u ------------------> u_tile [16][C_STEP][CHANNELS]   /   registers: 16 work-items per point, each 8 patches
//                                                               x CHANNELS / 4 channels
//   Then for 16 channels at a time: products -> local [16][32][16] --A^T m A--> 2x2 outputs of 4 channels a
//   work-item.
//
// The channel stride of x is 1; u is [16][C][K]. The gradient is the
//   same with x = dy and pad = 2 - pad.
//   Grid: global (ceil(batch*ceil(out_h/2)*ceil(out_w/2) / 32) * ceil(K/CHANNELS) * 256, 1, 1), local (256, 1, 1).
//   Epilogue macros: STORE(acc, n, k, h, w). Store dimension k, VW = 4.
// Macros of a launch: U_VEC4 (1: K is a multiple of 4), CHANNELS (output channels k of a work-group: 32, or 16 where a
//   work-item has few registers).
#ifndef FETCH_AHEAD
#define FETCH_AHEAD 1  // 1: the loads of the next step are in flight during the products; costs 32 registers
#endif

#define PATCHES 32  // patches of a work-group
#define QUADS (CHANNELS / 16)  // float4 along the channels that a work-item accumulates for a patch
#define C_STEP 8  // input channels of a step
#define GROUP_SIZE 256  // work-items: PATCHES * C_STEP transforms of x, 16 points * 16 items
#define V_ROW (PATCHES + 4)  // floats of a row; its padding lets 8 channels of 4 patches use 32 different banks
// floats between two of the 16 Winograd points; the padding puts neighbouring points into different banks
#define V_POINT (C_STEP * V_ROW + 16)
#define U_POINT (C_STEP * CHANNELS + 16)
// The larger one of both tiles, and of the products of all points with 16 channels.
#if CHANNELS == 32
#define LOCAL_FLOATS (16 * (V_POINT + U_POINT))
#else
#define LOCAL_FLOATS (16 * PATCHES * 16)
#endif

// Returns B^T * (a, b, c, d).
OCL_INLINE float4 patch_points(const float a, const float b, const float c, const float d) {
  return (float4)(a - c, b + c, c - b, b - d);
}

// The two elements of A^T * (m0, m1, m2, m3): UPPER for the upper or left output, LOWER for the lower or right one.
#define UPPER(m0, m1, m2, m3) ((m0) + (m1) + (m2))
#define LOWER(m0, m1, m2, m3) ((m1) - (m2) - (m3))

// x: [batch, C, in_h, in_w] with strides x_n, 1, x_h, x_w; u: [16][C][K]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local float4 shared[LOCAL_FLOATS / 4];
  __local float* v_tile = (__local float*)shared;
  __local float* u_tile = (__local float*)shared + 16 * V_POINT;
  const int lane = get_local_id(0);
  const int k_blocks = (K + CHANNELS - 1) / CHANNELS;
  const int patch0 = (int)get_group_id(0) / k_blocks * PATCHES;  // neighbouring work-groups share patches of x
  const int k0 = (int)get_group_id(0) % k_blocks * CHANNELS;
  const int rows = (out_h + 1) / 2, columns = (out_w + 1) / 2;
  const int patches = batch * rows * columns;

  // The patch and channel that this work-item transforms.
  const int v_c = lane % C_STEP, v_patch = lane / C_STEP;
  const int from = patch0 + v_patch;
  const int from_h = from < patches ? from / columns % rows * 2 - pad_h : -0x20000000;
  const int from_w = from % columns * 2 - pad_w;
  x += x_offset + min(from / columns / rows, batch - 1) * x_n + v_c;
  u += u_offset + k0;
  // The point and the 8 x (4 * QUADS) products that this work-item accumulates.
  const int point = lane / 16, item_k = lane % 4, item_patch = lane / 4 % 4;

  float4 acc[8 * QUADS];
  OCL_UNROLL
  for (int i = 0; i < 8 * QUADS; ++i) acc[i] = (float4)(0.0f);
  float d[4][4];
  float4 u_held[2 * QUADS];

#define FETCH(c0)                                                                                                    \
  {                                                                                                                  \
    OCL_UNROLL                                                                                                       \
    for (int i = 0; i < 4; ++i) {                                                                                    \
      OCL_UNROLL                                                                                                     \
      for (int j = 0; j < 4; ++j) {                                                                                  \
        const int h = from_h + i, w = from_w + j;                                                                    \
        d[i][j] = 0.0f;                                                                                              \
        if (h >= 0 && h < in_h && w >= 0 && w < in_w && (c0) + v_c < C) d[i][j] = LOAD(x, h * x_h + w * x_w + (c0)); \
      }                                                                                                              \
    }                                                                                                                \
    OCL_UNROLL                                                                                                       \
    for (int i = 0; i < 2 * QUADS; ++i) {                                                                            \
      const int e = lane + i * GROUP_SIZE, k = e % (CHANNELS / 4) * 4, c = (c0) + e / (CHANNELS / 4) % C_STEP;       \
      const long at = ((long)(e / (CHANNELS / 4 * C_STEP)) * C + c) * K + k;                                         \
      u_held[i] = (float4)(0.0f);                                                                                    \
      if (c < C && k0 + k < K) {                                                                                     \
        if (U_VEC4)                                                                                                  \
          u_held[i] = load4(u + at, ALIGNED(u_offset));                                                              \
        else {                                                                                                       \
          u_held[i].x = LOAD(u, at);                                                                                 \
          if (k0 + k + 1 < K) u_held[i].y = LOAD(u, at + 1);                                                         \
          if (k0 + k + 2 < K) u_held[i].z = LOAD(u, at + 2);                                                         \
          if (k0 + k + 3 < K) u_held[i].w = LOAD(u, at + 3);                                                         \
        }                                                                                                            \
      }                                                                                                              \
    }                                                                                                                \
  }

  if (FETCH_AHEAD) FETCH(0)
  for (int c0 = 0; c0 < C; c0 += C_STEP) {
    if (!FETCH_AHEAD) FETCH(c0)
    float4 half_done[4];  // column j of B^T d
    OCL_UNROLL
    for (int j = 0; j < 4; ++j) half_done[j] = patch_points(d[0][j], d[1][j], d[2][j], d[3][j]);
    __local float* v = v_tile + v_c * V_ROW + v_patch;
    const float4 v0 = patch_points(half_done[0].x, half_done[1].x, half_done[2].x, half_done[3].x);
    const float4 v1 = patch_points(half_done[0].y, half_done[1].y, half_done[2].y, half_done[3].y);
    const float4 v2 = patch_points(half_done[0].z, half_done[1].z, half_done[2].z, half_done[3].z);
    const float4 v3 = patch_points(half_done[0].w, half_done[1].w, half_done[2].w, half_done[3].w);
    v[0 * V_POINT] = v0.x;
    v[1 * V_POINT] = v0.y;
    v[2 * V_POINT] = v0.z;
    v[3 * V_POINT] = v0.w;
    v[4 * V_POINT] = v1.x;
    v[5 * V_POINT] = v1.y;
    v[6 * V_POINT] = v1.z;
    v[7 * V_POINT] = v1.w;
    v[8 * V_POINT] = v2.x;
    v[9 * V_POINT] = v2.y;
    v[10 * V_POINT] = v2.z;
    v[11 * V_POINT] = v2.w;
    v[12 * V_POINT] = v3.x;
    v[13 * V_POINT] = v3.y;
    v[14 * V_POINT] = v3.z;
    v[15 * V_POINT] = v3.w;
    OCL_UNROLL
    for (int i = 0; i < 2 * QUADS; ++i) {
      const int e = lane + i * GROUP_SIZE;
      *(__local float4*)(u_tile + e / (CHANNELS / 4 * C_STEP) * U_POINT + e % (CHANNELS / 4 * C_STEP) * 4) = u_held[i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // both tiles of this step are complete
    if (FETCH_AHEAD && c0 + C_STEP < C) FETCH(c0 + C_STEP)
    UNROLL_MULTIPLY
    for (int c = 0; c < C_STEP; ++c) {
      float4 a[2], b[QUADS];
      OCL_UNROLL
      for (int i = 0; i < 2; ++i)
        a[i] = *(__local const float4*)(v_tile + point * V_POINT + c * V_ROW + (i * 4 + item_patch) * 4);
      OCL_UNROLL
      for (int j = 0; j < QUADS; ++j)
        b[j] = *(__local const float4*)(u_tile + point * U_POINT + c * CHANNELS + (j * 4 + item_k) * 4);
      OCL_UNROLL
      for (int i = 0; i < 2; ++i) {
        OCL_UNROLL
        for (int j = 0; j < QUADS; ++j) {
          const int at = i * 4 * QUADS + j;
          acc[at] = fma((float4)(a[i].x), b[j], acc[at]);
          acc[at + QUADS] = fma((float4)(a[i].y), b[j], acc[at + QUADS]);
          acc[at + 2 * QUADS] = fma((float4)(a[i].z), b[j], acc[at + 2 * QUADS]);
          acc[at + 3 * QUADS] = fma((float4)(a[i].w), b[j], acc[at + 3 * QUADS]);
        }
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // everyone has read the tiles of this step
  }

  // Stores the products of 16 channels as [16 points][32 patches][16 channels]. Then a work-item takes a patch and four
  // channels.
  const int out_patch = lane / 4, out_k = lane % 4 * 4;
  const int at_patch = patch0 + out_patch;
  const int n = at_patch / columns / rows, h = at_patch / columns % rows * 2, w = at_patch % columns * 2;
  OCL_UNROLL
  for (int j = 0; j < QUADS; ++j) {
    OCL_UNROLL
    for (int i = 0; i < 8; ++i)
      shared[(point * PATCHES + (i / 4 * 4 + item_patch) * 4 + i % 4) * 4 + item_k] = acc[i * QUADS + j];
    barrier(CLK_LOCAL_MEM_FENCE);  // the products of all points are complete
    if (out_patch < PATCHES && at_patch < patches) {
      float4 upper[4], lower[4];
      OCL_UNROLL
      for (int s = 0; s < 4; ++s) {
        float4 m[4];
        OCL_UNROLL
        for (int r = 0; r < 4; ++r) m[r] = shared[((r * 4 + s) * PATCHES + out_patch) * 4 + out_k / 4];
        upper[s] = UPPER(m[0], m[1], m[2], m[3]);
        lower[s] = LOWER(m[0], m[1], m[2], m[3]);
      }
      const int k = k0 + j * 16 + out_k;
      OCL_UNROLL
      for (int r = 0; r < 2; ++r) {
        OCL_UNROLL
        for (int s = 0; s < 2; ++s) {
          const float4 m0 = r ? lower[0] : upper[0], m1 = r ? lower[1] : upper[1], m2 = r ? lower[2] : upper[2],
                       m3 = r ? lower[3] : upper[3];
          const float4 value = s ? LOWER(m0, m1, m2, m3) : UPPER(m0, m1, m2, m3);
          if (h + r < out_h && w + s < out_w) {
            if (k + 3 < K)
              STOREV(value, n, k, h + r, w + s);
            else
              for (int l = 0; l < K - k; ++l) STORE(lane_of(value, l), n, k + l, h + r, w + s);
          }
        }
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // all have read the products, so the next half may overwrite them
  }
}
