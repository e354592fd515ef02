// kernels/winograd/weight_item.cl: weight gradient of a 3x3 convolution of stride 1 by Winograd F(2x2, 3x3), the
// transposed forward algorithm: 16 multiplications instead of 36 for 4 pixels of dy. Item kernel.
//   forward    y  = A' [ (G g G') * (B' d B) ] A                         (kernels/winograd/item.cl)
//   so         dg = G' [ sum over tiles of (A dy A') * (B' d B) ] G      A = [1 0; 1 1; 1 -1; 0 -1]
//
// B and G are those of kernels/winograd/item.cl. A task is one slice of the tiles, together with CB channels of x and
// KB channels of dy. A work-item takes several tasks. For each task it goes through the slice in blocks of TILE_BLOCK
// tiles:
//     x (4x4 patches)  --B'dB--> V[16][TILE_BLOCK][CB] --+
//     dy (2x2 pixels)  -AdyA'--> D[16][TILE_BLOCK][KB] --+--> U[16][KB][CB] += D[xi]' V[xi] --G'UG--> stores
//                                `-- scratch of a work-item, in L2: 64*(TILE_BLOCK*(CB + KB) + CB*KB) bytes --'
// Products are computed in MR x TN register tiles, whose vectors run along c, as in conv/weight_packed_item.cl. The sum
// over a block is made in registers before it is added to U. So sums stay short, and the results are the same in each run.
//
// Inputs: x[n*x_n + h*x_h + w*x_w + c], dy[n*dy_n + h*dy_h + w*dy_w + k]; C % VW == 0, K % VW == 0, K % MR == 0;
//   zeros: max(C, K) zeros; scratch: float, 16*(TILE_BLOCK*(CB + KB) + CB*KB) elements for each work-item
// Global size: (items, 1, 1), local (1, 1, 1).
// Epilogue macros: STORE unused, STOREV(acc, k, c, r, s) along c; k = split*K + channel. With splits > 1 an
//   ordinary reduction adds the splits in order.
// Macros of a launch: MR (channels k of a register tile; MR*NV + NV + 1 <= number of vector registers), NV (vectors (of
//   VW floats) of c in a register tile), CB (channels c of a task, a multiple of TN), KB (channels k of a task, a
//   multiple of VW and MR), TILE_BLOCK (tiles of 2x2 pixels of dy in a block).

// o = B' d
OCL_INLINE void transform_input(const VEC* d, VEC* o) {
  o[0] = d[0] - d[2];
  o[1] = d[1] + d[2];
  o[2] = d[2] - d[1];
  o[3] = d[1] - d[3];
}
// o = A d
OCL_INLINE void transform_gradient(const VEC* d, VEC* o) {
  o[0] = d[0];
  o[1] = d[0] + d[1];
  o[2] = d[0] - d[1];
  o[3] = -d[1];
}
// o = G' d
OCL_INLINE void transform_sums(const VEC* d, VEC* o) {
  const VEC even = 0.5f * (d[1] + d[2]);
  o[0] = d[0] + even;
  o[1] = 0.5f * (d[1] - d[2]);
  o[2] = even + d[3];
}

// Writes B' d B of VW channels of a patch, its 16 points `step` floats apart. patch: pointers to the channels of 16 pixels.
ALWAYS_INLINE void put_patch(__global float* to, const int step, __global const IN_T** patch, const int c) {
  VEC half_done[4][4];  // B' d
  OCL_UNROLL for (int s = 0; s < 4; ++s) {
    VEC d[4], o[4];
    OCL_UNROLL for (int r = 0; r < 4; ++r) d[r] = LOADV(patch[r * 4 + s], c);
    transform_input(d, o);
    OCL_UNROLL for (int r = 0; r < 4; ++r) half_done[r][s] = o[r];
  }
  OCL_UNROLL for (int r = 0; r < 4; ++r) {
    VEC o[4];
    transform_input(half_done[r], o);
    OCL_UNROLL for (int s = 0; s < 4; ++s) VSTORE(o[s], to + (r * 4 + s) * step);
  }
}

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int item = get_global_id(0), items = get_global_size(0);
  const int blocks_c = (C + CB - 1) / CB, blocks_k = (K + KB - 1) / KB;
  const int tiles_h = (out_h + 1) / 2, tiles_w = (out_w + 1) / 2, tiles = batch * tiles_h * tiles_w,
            blocks = (tiles + TILE_BLOCK - 1) / TILE_BLOCK;
  __global float* V = scratch + scratch_offset + (size_t)item * (16 * (TILE_BLOCK * (CB + KB) + CB * KB));
  __global float* D = V + 16 * TILE_BLOCK * CB;
  __global float* U = D + 16 * TILE_BLOCK * KB;
  x += x_offset;
  dy += dy_offset;
  zeros += zeros_offset;
  const int works = splits * blocks_c * blocks_k, work_end = (long)works * (item + 1) / items;
  for (int work = (long)works * item / items; work < work_end; ++work) {
    const int k_first = work % blocks_k * KB, c_first = work / blocks_k % blocks_c * CB,
              split = work / blocks_k / blocks_c;
    const int cols_c = min(CB, C - c_first), cols_k = min(KB, K - k_first);
    const int block_begin = (long)blocks * split / splits, block_end = (long)blocks * (split + 1) / splits;
    if (block_begin == block_end) {  // a split without tiles
      for (int i = 0; i < 16 * CB * KB; i += VW) VSTORE((VEC)(0.f), U + i);
    }
    for (int block = block_begin; block < block_end; ++block) {
      const int first = block * TILE_BLOCK, count = min(TILE_BLOCK, tiles - first);
      int column = first % tiles_w, row = first / tiles_w % tiles_h, n = first / tiles_w / tiles_h;
      for (int t = 0; t < count; ++t) {
        const int ow = column * 2, oh = row * 2, iw = ow - pad_w, ih = oh - pad_h;
        __global const IN_T* patch[16];  // the pixels of x; zeros[] for those outside the image
        __global const IN_T* pixel[4];  // the pixels of dy
        OCL_NO_UNROLL for (int i = 0; i < 16; ++i) {
          const int h = ih + i / 4, w = iw + i % 4;
          patch[i] = x + (n * x_n + (long)h * x_h + (long)w * x_w + c_first);
          if (h < 0 || h >= in_h || w < 0 || w >= in_w) patch[i] = zeros;
        }
        OCL_NO_UNROLL for (int i = 0; i < 4; ++i) {
          const int h = oh + i / 2, w = ow + i % 2;
          pixel[i] = dy + (n * dy_n + (long)h * dy_h + (long)w * dy_w + k_first);
          if (h >= out_h || w >= out_w) pixel[i] = zeros;
        }
        if (++column == tiles_w) {
          column = 0;
          if (++row == tiles_h) {
            row = 0;
            ++n;
          }
        }
        // beyond the last vector of columns it reads the last one again
        for (int c = 0; c < (cols_c + TN - 1) / TN * TN; c += VW)
          put_patch(V + t * CB + c, TILE_BLOCK * CB, patch, min(c, cols_c - VW));
        for (int k = 0; k < cols_k; k += VW) {
          VEC half_done[4][2];  // A d
          OCL_UNROLL for (int s = 0; s < 2; ++s) {
            VEC d[2], o[4];
            OCL_UNROLL for (int r = 0; r < 2; ++r) d[r] = LOADV(pixel[r * 2 + s], k);
            transform_gradient(d, o);
            OCL_UNROLL for (int r = 0; r < 4; ++r) half_done[r][s] = o[r];
          }
          OCL_UNROLL for (int r = 0; r < 4; ++r) {
            VEC o[4];
            transform_gradient(half_done[r], o);
            OCL_UNROLL for (int s = 0; s < 4; ++s) VSTORE(o[s], D + ((r * 4 + s) * TILE_BLOCK + t) * KB + k);
          }
        }
      }
      for (int xi = 0; xi < 16; ++xi)
        for (int c = 0; c < cols_c; c += TN)
          for (int k = 0; k < cols_k; k += MR)
            add_products(U + (xi * KB + k) * CB + c, D + xi * (TILE_BLOCK * KB) + k, KB, V + xi * (TILE_BLOCK * CB) + c,
                         CB, count, block == block_begin);
    }
    for (int k = 0; k < cols_k; ++k)
      for (int c = 0; c < cols_c; c += VW) {
        VEC half_done[3][4];  // G' U
        OCL_UNROLL for (int s = 0; s < 4; ++s) {
          VEC d[4], o[3];
          OCL_UNROLL for (int r = 0; r < 4; ++r) d[r] = VLOAD(U + ((r * 4 + s) * KB + k) * CB + c);
          transform_sums(d, o);
          OCL_UNROLL for (int r = 0; r < 3; ++r) half_done[r][s] = o[r];
        }
        float results[9 * VW];  // an array, so that the loop below has only one call of the epilogue macros
        OCL_UNROLL for (int r = 0; r < 3; ++r) {
          VEC o[3];
          transform_sums(half_done[r], o);
          OCL_UNROLL for (int s = 0; s < 3; ++s) VSTORE(o[s], results + (r * 3 + s) * VW);
        }
        OCL_NO_UNROLL for (int i = 0; i < 9; ++i) {
          const VEC value = VLOAD(results + i * VW);
          STOREV(value, split * K + k_first + k, c_first + c, i / 3, i % 3);
        }
      }
  }
}
