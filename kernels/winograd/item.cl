// kernels/winograd/item.cl: 3x3 convolution of stride 1 by Winograd's algorithm. A tile of 2x2 outputs takes 16
// multiplications instead of 36, a tile of 2x4 outputs 24 instead of 72. Item kernel.
// Source: Lavin & Gray 2016. For each tile of 2 x TILE_W outputs, d = its 4 x PW inputs, g = the filter:
//   U = G g H'   V = B' d C   M[xi] = sum over c of U[xi][c] V[xi][c], xi = 0..4*PW-1   y = A' M D
//   G = [1 0 0; .5 .5 .5; .5 -.5 .5; 0 0 1]   B' = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]   A' = [1 1 1 0; 0 1 -1 -1]
// With TILE_W = 2, H = G, C = B and D = A. With TILE_W = 4 they are made from the points 0, +-5/8, +-3/2 and infinity.
// Other points have larger rounding errors: 0, +-1, +-2, the usual ones, twice as large.
// M is summed over SUM_CHANNELS channels at a time. One sum over 512 channels would have three times the error.
// The data gradient is the forward kernel with flipped filters, exchanged channels and pad' = 2 - pad.
//
// The filters are transformed before, by ordinary loops. This kernel computes the other steps, fused over blocks of
// tiles that stay in cache:
//
//     x (4xPW patch) --B'dC--> V[xi][tile_block][Cv] --x U[xi][panel][C][TN]--> M[xi][tile_block][TN] --A'mD--> stores
//                              `------------------- scratch of a work-item, Cv = C rounded up to VW ----'
//
//   Work-item (i, q) takes blocks i, i + items, ... of `tile_block` tiles, and the panels from q*panels_per_item on. It
//   transforms a block into V. Then, for each panel, it multiplies 4*PW matrices into M and transforms M into pixels of
//   TN channels.
//   x        NHWC: x[n*x_n + h*x_h + w*x_w + c]
//   u        the transformed filters U[4*PW][ceil(K/TN)][C][TN], zeros where k >= K, with POINT_GAP
//            floats behind each point
//   zeros    C zeros
//   scratch  float, 4*PW*(tile_block*(Cv + TN) + 2*VW) elements for each work-item (global size 0 * global size 1)
//   Global size: (items, ceil(ceil(K/TN) / panels_per_item), 1), local (1, 1, 1). items: enough to keep all cores busy,
//     at most ceil(tiles / tile_block) with tiles = batch*ceil(out_h/2)*ceil(out_w/TILE_W). Good values: tile_block 24
//     with 16*PW*tile_block*(C + TN) bytes <= 1 MB. For few tiles and many channels: a block of all tiles, one panel.
//   Epilogue macros: STORE(acc, n, k, h, w), STOREV(acc, n, k, h, w); store dimension k.
// Macros of a launch: TILE_W (columns of a tile of outputs, 2 or 4), POINT_GAP (see u), MR (tiles (rows of V) of a
//   register tile), NV (vectors (of VW floats) of output channels in a register tile), WHOLE_VECTORS (1: C and K are
//   multiples of VW).
#define TN (NV * VW)  // output channels of a panel
#define PW (TILE_W + 2)  // columns of a patch of inputs
#define SUM_CHANNELS 24  // channels of one running sum

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

#if TILE_W == 2
#define transform_input_row transform_input
#define transform_output_row transform_output
#else
#define A (VEC)(5.f / 8)
#define B (VEC)(3.f / 2)
#define AA (VEC)(25.f / 64)
#define BB (VEC)(9.f / 4)
// o = C' d
OCL_INLINE void transform_input_row(const VEC* d, VEC* o) {
  const VEC even_a = fma(-BB, d[2], d[4]), odd_a = A * fma(-BB, d[1], d[3]);
  const VEC even_b = fma(-AA, d[2], d[4]), odd_b = B * fma(-AA, d[1], d[3]);
  o[0] = fma(AA * BB, d[0], fma(-(AA + BB), d[2], d[4]));
  o[1] = even_a + odd_a;
  o[2] = even_a - odd_a;
  o[3] = even_b + odd_b;
  o[4] = even_b - odd_b;
  o[5] = fma(AA * BB, d[1], fma(-(AA + BB), d[3], d[5]));
}
// o = D' d
OCL_INLINE void transform_output_row(const VEC* d, VEC* o) {
  const VEC even_a = d[1] + d[2], odd_a = A * (d[1] - d[2]), even_b = d[3] + d[4], odd_b = B * (d[3] - d[4]);
  o[0] = d[0] + even_a + even_b;
  o[1] = odd_a + odd_b;
  o[2] = fma(AA, even_a, BB * even_b);
  o[3] = fma(AA, odd_a, BB * odd_b) + d[5];
}
#undef A
#undef B
#undef AA
#undef BB
#endif

// Writes c[i][0..TN) = sum over k < C of a[i*pitch + k] * b[k][0..TN), for rows i < min(rows, MR); c is dense
OCL_INLINE void multiply_tile(__global const float* a, const int pitch, __global const IN_T* b, __global float* c,
                              const int rows, const int C) {
  __global const float* row[MR];
  OCL_UNROLL for (int i = 0; i < MR; ++i) row[i] = a + min(i, rows - 1) * pitch;
  for (int first = 0; first < C; first += SUM_CHANNELS) {
    VEC acc[MR][NV];
    OCL_UNROLL for (int i = 0; i < MR; ++i) OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = (VEC)(0.f);
    const int end = min(first + SUM_CHANNELS, C);
    for (int k = first; k < end; ++k) {
      VEC bv[NV];
      OCL_UNROLL for (int v = 0; v < NV; ++v) bv[v] = LOADV(b, (long)k * TN + v * VW);
      OCL_UNROLL for (int i = 0; i < MR; ++i) {
        const VEC av = (VEC)(row[i][k]);
        OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] = fma(av, bv[v], acc[i][v]);
      }
    }
    if (first > 0) {
      OCL_UNROLL for (int i = 0; i < MR; ++i) if (i < rows) {
        OCL_UNROLL for (int v = 0; v < NV; ++v) acc[i][v] += VLOAD(c + i * TN + v * VW);
      }
    }
    OCL_UNROLL for (int i = 0; i < MR; ++i) if (i < rows) {
      OCL_UNROLL for (int v = 0; v < NV; ++v) VSTORE(acc[i][v], c + i * TN + v * VW);
    }
  }
}

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int item = get_global_id(0), items = get_global_size(0), panels = (K + TN - 1) / TN;
  const int panel_begin = get_global_id(1) * panels_per_item, panel_end = min(panel_begin + panels_per_item, panels);
  const int tiles_h = (out_h + 1) / 2, tiles_w = (out_w + TILE_W - 1) / TILE_W, tiles = batch * tiles_h * tiles_w;
  const int pitch = (C + VW - 1) / VW * VW;
  // From a point of a tile to the next: no multiple of 4096 bytes, so that points are in different sets of a cache.
  const int v_step = tile_block * pitch + VW, m_step = tile_block * TN + VW;
  __global float* V =
      scratch + scratch_offset + (get_global_id(1) * items + item) * (size_t)(4 * PW) * (v_step + m_step);
  __global float* M = V + (size_t)(4 * PW) * v_step;
  x += x_offset;
  u += u_offset;
  zeros += zeros_offset;
  for (int block = item * tile_block; block < tiles; block += items * tile_block) {
    const int count = min(tile_block, tiles - block);
    for (int t = 0; t < count; ++t) {
      const int tile = block + t, iw = tile % tiles_w * TILE_W - pad_w, ih = tile / tiles_w % tiles_h * 2 - pad_h;
      __global const IN_T* image = x + tile / tiles_w / tiles_h * x_n;
      __global const IN_T* patch[4 * PW];  // the pixels of the tile; zeros[] for those outside the image
      OCL_NO_UNROLL for (int i = 0; i < 4 * PW; ++i) {
        const int h = ih + i / PW, w = iw + i % PW;
        patch[i] = image + ((long)h * x_h + (long)w * x_w);
        if (h < 0 || h >= in_h || w < 0 || w >= in_w) patch[i] = zeros;
      }
      for (int c = 0; c < C; c += VW) {
#if WHOLE_VECTORS
#define PATCH(i) LOADV(patch[i], c)
#else
        // Channels after the last whole vector are loaded one by one, because x may end there.
        float lanes[4 * PW * VW];
        if (c + VW > C) {
          for (int i = 0; i < 4 * PW; ++i)
            for (int l = 0; l < VW; ++l) lanes[i * VW + l] = c + l < C ? LOAD(patch[i], c + l) : 0.f;
        } else {
          OCL_UNROLL for (int i = 0; i < 4 * PW; ++i) VSTORE(LOADV(patch[i], c), lanes + i * VW);
        }
#define PATCH(i) VLOAD(lanes + (i) * VW)
#endif
        VEC half_done[4][PW];  // B' d
        OCL_UNROLL for (int s = 0; s < PW; ++s) {
          VEC d[4], o[4];
          OCL_UNROLL for (int r = 0; r < 4; ++r) d[r] = PATCH(r * PW + s);
          transform_input(d, o);
          OCL_UNROLL for (int r = 0; r < 4; ++r) half_done[r][s] = o[r];
        }
        OCL_UNROLL for (int r = 0; r < 4; ++r) {
          VEC o[PW];
          transform_input_row(half_done[r], o);
          OCL_UNROLL for (int s = 0; s < PW; ++s) VSTORE(o[s], V + (size_t)(r * PW + s) * v_step + t * pitch + c);
        }
      }
    }
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      for (int xi = 0; xi < 4 * PW; ++xi)
        for (int t = 0; t < count; t += MR)
          multiply_tile(V + (size_t)xi * v_step + t * pitch, pitch,
                        u + (size_t)(xi * panels + panel) * C * TN + xi * POINT_GAP, M + (size_t)xi * m_step + t * TN,
                        count - t, C);
      for (int t = 0; t < count; ++t) {
        const int tile = block + t, ow = tile % tiles_w * TILE_W, oh = tile / tiles_w % tiles_h * 2,
                  n = tile / tiles_w / tiles_h;
        for (int j = 0; j < min(TN, K - panel * TN); j += VW) {
          const int k = panel * TN + j;
          VEC half_done[2][PW];  // A' m
          OCL_UNROLL for (int s = 0; s < PW; ++s) {
            VEC d[4], o[2];
            OCL_UNROLL for (int r = 0; r < 4; ++r) d[r] = VLOAD(M + (size_t)(r * PW + s) * m_step + t * TN + j);
            transform_output(d, o);
            OCL_UNROLL for (int r = 0; r < 2; ++r) half_done[r][s] = o[r];
          }
          float outputs[2 * TILE_W * VW];  // an array, so that the loop below has only one call of the epilogue macros
          OCL_UNROLL for (int r = 0; r < 2; ++r) {
            VEC o[TILE_W];
            transform_output_row(half_done[r], o);
            OCL_UNROLL for (int s = 0; s < TILE_W; ++s) VSTORE(o[s], outputs + (r * TILE_W + s) * VW);
          }
          OCL_NO_UNROLL for (int i = 0; i < 2 * TILE_W; ++i) {
            const int h = oh + i / TILE_W, w = ow + i % TILE_W;
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
