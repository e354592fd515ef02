// kernels/winograd/item.cl: 3x3 convolution of stride 1 by Winograd F(2x2, 3x3), with 16 multiplications instead of 36
// for 4 outputs. Item kernel.
// Source: Lavin & Gray 2016. For each tile of 2x2 outputs, d = its 4x4 inputs, g = the filter:
//   U = G g G'   V = B' d B   M[xi] = sum over c of U[xi][c] V[xi][c], xi = 0..15   y = A' M A
//   G = [1 0 0; .5 .5 .5; .5 -.5 .5; 0 0 1]   B' = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]   A' = [1 1 1 0; 0 1 -1 -1]
// The data gradient is the forward kernel with flipped filters, exchanged channels and pad' = 2 - pad.
//
// The filters are transformed before, by ordinary loops. This kernel computes the other steps, fused over blocks of
// tiles that stay in cache:
//
//     x (4x4 patches) --B'dB--> V[16][tile_block][Cv] --x U[16][panel][C][TN]--> M[16][tile_block][TN] --A'mA--> stores
//                               `------------------- scratch of a work-item, Cv = C rounded up to VW ----'
//
//   Work-item (i, q) takes blocks i, i + items, ... of `tile_block` tiles, and the panels from q*panels_per_item on. It
//   transforms a block into V. Then, for each panel, it multiplies 16 matrices into M and transforms M into 2x2 pixels
//   of TN channels.
//   x        NHWC: x[n*x_n + h*x_h + w*x_w + c]
//   u        the transformed filters U[16][ceil(K/TN)][C][TN], zeros where k >= K
//   zeros    C zeros
//   scratch  float, 16*tile_block*(Cv + TN) elements for each work-item (global size 0 * global size 1)
//   Global size: (items, ceil(ceil(K/TN) / panels_per_item), 1), local (1, 1, 1). items: enough to keep all cores busy,
//     at most ceil(tiles / tile_block) with tiles = batch*ceil(out_h/2)*ceil(out_w/2). Good values: tile_block 24 with
//     16*tile_block*(C + TN)*4 bytes <= 1 MB. For few tiles and many channels: a block of all tiles, and one panel.
//   Epilogue macros: STORE(acc, n, k, h, w), STOREV(acc, n, k, h, w); store dimension k.
// Macros of a launch: MR (tiles (rows of V) of a register tile), NV (vectors (of VW floats) of output channels in a
//   register tile), WHOLE_VECTORS (1: C and K are multiples of VW).
#define TN (NV * VW)  // output channels of a panel
#ifndef STORE  // without generated epilogue macros: dense y[n][h][w][k]
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset, const int y_H, const int y_W, const int y_K
#define EPILOGUE_PASS , y, y_offset, y_H, y_W, y_K
#define STORE(acc, n, k, h, w) (y[y_offset + (((ulong)(n) * y_H + (h)) * y_W + (w)) * y_K + (k)] = (acc))
#define STOREV(acc, n, k, h, w) VSTORE(acc, y + y_offset + (((ulong)(n) * y_H + (h)) * y_W + (w)) * y_K + (k))
#endif

// o = B' d
OCL_INLINE void transform_input(const VEC* d, VEC* o) {
  o[0] = d[0] - d[2];
  o[1] = d[1] + d[2];
  o[2] = d[2] - d[1];
  o[3] = d[1] - d[3];
}
// o = A' d
OCL_INLINE void transform_output(const VEC* d, VEC* o) {
  o[0] = d[0] + d[1] + d[2];
  o[1] = d[1] - d[2] - d[3];
}

// Writes c[i][0..TN) = sum over k < C of a[i*pitch + k] * b[k][0..TN), for rows i < min(rows, MR); c is dense
OCL_INLINE void multiply_tile(__global const float* a, const int pitch, __global const IN_T* b, __global float* c,
                              const int rows, const int C) {
  VEC acc[MR][NV];
  __global const float* row[MR];
  OCL_UNROLL for (int i = 0; i < MR; ++i) {
    row[i] = a + min(i, rows - 1) * pitch;
    OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
  }
  for (int k = 0; k < C; ++k) {
    VEC bv[NV];
    OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = LOADV(b, (long)k * TN + v * VW);
    OCL_UNROLL for (int i = 0; i < MR; ++i) {
      const VEC av = (VEC)(row[i][k]);
      OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
    }
  }
  OCL_UNROLL for (int i = 0; i < MR; ++i) if (i < rows) {
    OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(acc[i][v], c + i * TN + v * VW);
  }
}

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int item = get_global_id(0), items = get_global_size(0), panels = (K + TN - 1) / TN;
  const int panel_begin = get_global_id(1) * panels_per_item, panel_end = min(panel_begin + panels_per_item, panels);
  const int tiles_h = (out_h + 1) / 2, tiles_w = (out_w + 1) / 2, tiles = batch * tiles_h * tiles_w;
  const int pitch = (C + VW - 1) / VW * VW;
  __global float* V =
      scratch + scratch_offset + (get_global_id(1) * items + item) * (size_t)(16 * tile_block) * (pitch + TN);
  __global float* M = V + (size_t)(16 * tile_block) * pitch;
  x += x_offset;
  u += u_offset;
  zeros += zeros_offset;
  for (int block = item * tile_block; block < tiles; block += items * tile_block) {
    const int count = min(tile_block, tiles - block);
    for (int t = 0; t < count; ++t) {
      const int tile = block + t, iw = tile % tiles_w * 2 - pad_w, ih = tile / tiles_w % tiles_h * 2 - pad_h;
      __global const IN_T* image = x + tile / tiles_w / tiles_h * x_n;
      __global const IN_T* patch[16];  // the pixels of the tile; zeros[] for those outside the image
      OCL_NO_UNROLL for (int i = 0; i < 16; ++i) {
        const int h = ih + i / 4, w = iw + i % 4;
        patch[i] = image + ((long)h * x_h + (long)w * x_w);
        if (h < 0 || h >= in_h || w < 0 || w >= in_w) patch[i] = zeros;
      }
      for (int c = 0; c < C; c += VW) {
#if WHOLE_VECTORS
#define PATCH(i) LOADV(patch[i], c)
#else
        float lanes[16 * VW];  // channels after the last whole vector are loaded one by one, because x may end there
        if (c + VW > C) {
          for (int i = 0; i < 16; ++i)
            for (int l = 0; l < VW; ++l) lanes[i * VW + l] = c + l < C ? LOAD(patch[i], c + l) : 0.f;
        } else {
          OCL_UNROLL for (int i = 0; i < 16; ++i) VSTORE(LOADV(patch[i], c), lanes + i * VW);
        }
#define PATCH(i) VLOAD(lanes + (i) * VW)
#endif
        VEC half_done[4][4];  // B' d
        OCL_UNROLL for (int s = 0; s < 4; ++s) {
          VEC d[4], o[4];
          OCL_UNROLL for (int r = 0; r < 4; ++r) d[r] = PATCH(r * 4 + s);
          transform_input(d, o);
          OCL_UNROLL for (int r = 0; r < 4; ++r) half_done[r][s] = o[r];
        }
        OCL_UNROLL for (int r = 0; r < 4; ++r) {
          VEC o[4];
          transform_input(half_done[r], o);
          OCL_UNROLL for (int s = 0; s < 4; ++s) VSTORE(o[s], V + (size_t)((r * 4 + s) * tile_block + t) * pitch + c);
        }
      }
    }
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      for (int xi = 0; xi < 16; ++xi)
        for (int t = 0; t < count; t += MR)
          multiply_tile(V + (size_t)(xi * tile_block + t) * pitch, pitch, u + (size_t)(xi * panels + panel) * C * TN,
                        M + (size_t)(xi * tile_block + t) * TN, count - t, C);
      for (int t = 0; t < count; ++t) {
        const int tile = block + t, ow = tile % tiles_w * 2, oh = tile / tiles_w % tiles_h * 2,
                  n = tile / tiles_w / tiles_h;
        for (int j = 0; j < min(TN, K - panel * TN); j += VW) {
          const int k = panel * TN + j;
          VEC half_done[2][4];  // A' m
          OCL_UNROLL for (int s = 0; s < 4; ++s) {
            VEC d[4], o[2];
            OCL_UNROLL for (int r = 0; r < 4; ++r) d[r] = VLOAD(M + (size_t)((r * 4 + s) * tile_block + t) * TN + j);
            transform_output(d, o);
            OCL_UNROLL for (int r = 0; r < 2; ++r) half_done[r][s] = o[r];
          }
          float outputs[4 * VW];  // an array, so that the loop below has only one call of the epilogue macros
          OCL_UNROLL for (int r = 0; r < 2; ++r) {
            VEC o[2];
            transform_output(half_done[r], o);
            OCL_UNROLL for (int s = 0; s < 2; ++s) VSTORE(o[s], outputs + (r * 2 + s) * VW);
          }
          OCL_NO_UNROLL for (int i = 0; i < 4; ++i) {
            const int h = oh + i / 2, w = ow + i % 2;
            if (h >= out_h || w >= out_w) continue;
#if !WHOLE_VECTORS
            if (k + VW > K) {
              for (int l = 0; l < K - k; ++l) STORE(outputs[i * VW + l], n, k + l, h, w);
              continue;
            }
#endif
            const VEC value = VLOAD(outputs + i * VW);
            STOREV(value, n, k, h, w);
          }
        }
      }
    }
  }
}
