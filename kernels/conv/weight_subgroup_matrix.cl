// kernels/conv/weight_subgroup_matrix.cl: gradient of a 2-D convolution with respect to its weight by matrix
// instructions of a subgroup. Both tensors are read in place.
//
// The formula, the arguments and the splits over pixels are those of conv/weight_group.cl. The instructions, the loop
// and the slabs of the stores are in tensor_core/subgroup_matrix.cl. GEMM with M = filters k (A = dy, filters
// contiguous), N = (r, s, c) flattened with c fastest (B = x), depth = pixels of dy. A chunk of x (16 bytes) has channels
// of one tap, so C is a multiple of CHUNK.
//
// A work-item loads chunks of DEPTHS neighbouring pixels in each step, the same pixels for dy and for x. Its filters, its
// columns and their taps never change.
//
// split_pixels (pixels of a split) is a multiple of STEP_K. The channel strides are 1; C, K and the other strides are
//   multiples of CHUNK.
// Grid: global (ceil(R*S*C/TILE_N) * ceil(K/TILE_M) * GROUP_SIZE, groups, splits), local (GROUP_SIZE, 1, 1).
// Epilogue macros: STORE(acc, split * filters + k, c, r, s); k over all groups, c within the group. Store dimension c,
//   VW 2 or as many elements as 16 bytes have.
#define APART (GROUP_SIZE / 16 * CHUNK)  // filters or columns from one chunk of a work-item to the next

#define LOAD_PIXELS                                                                                            \
  {                                                                                                            \
    Pixel of = at;                                                                                             \
    OCL_UNROLL                                                                                                 \
    for (int j = 0; j < DEPTHS; ++j) {                                                                         \
      const int inside = pixel + j < last, h0 = of.h * stride_h, v0 = of.w * stride_w;                         \
      __global const OPERAND_T *dy_pixel = dy + (of.n * dy_n + (of.h * dy_h + of.w * dy_w)),                   \
                               *x_image = x + of.n * x_n;                                                      \
      OCL_UNROLL                                                                                               \
      for (int i = 0; i < BLOCKS(TILE_M); ++i)                                                                 \
        a_held[i * DEPTHS + j] =                                                                               \
            load_chunk(dy_pixel + i * APART, 1, inside && filter + i * APART < K ? CHUNK : 0, dy_aligned);     \
      OCL_UNROLL                                                                                               \
      for (int i = 0; i < BLOCKS(TILE_N); ++i) {                                                               \
        const int h = h0 + low_h[i], v = v0 + low_w[i];                                                        \
        const int used = inside && (uint)h < (uint)in_h && (uint)v < (uint)in_w;                               \
        b_held[i * DEPTHS + j] =                                                                               \
            load_chunk(used ? x_image + (h * x_h + v * x_w + channel[i]) : x, 1, used ? CHUNK : 0, x_aligned); \
      }                                                                                                        \
      of = next_pixel(of, one, out_h, out_w);                                                                  \
    }                                                                                                          \
    at = next_pixel(at, by, out_h, out_w);                                                                     \
    pixel += STEP_K;                                                                                           \
  }

// dy: [batch, groups * K, out_h, out_w] by strides; x: [batch, groups * C, in_h, in_w] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) SUBGROUP_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local uint4 local_memory[LOCAL_BYTES / 16];
  __local OPERAND_T* stage = (__local OPERAND_T*)local_memory;
  const int width = R * S * C, group = get_group_id(1), split = get_group_id(2), p = get_local_id(0);
  const int2 tile = tile_at(get_group_id(0), (K + TILE_M - 1) / TILE_M, (width + TILE_N - 1) / TILE_N);
  const int m0 = tile.x * TILE_M, n0 = tile.y * TILE_N;
  const int first = split * split_pixels, last = min(batch * out_h * out_w, first + split_pixels),
            steps = max(0, (last - first + STEP_K - 1) / STEP_K);
  const int dy_aligned = CHUNK_ALIGNED(dy_offset), x_aligned = CHUNK_ALIGNED(x_offset);

  const int filter = m0 + p / 16 * CHUNK;
  int pixel = first + p % 16 * DEPTHS;
  Pixel at = pixel_of(pixel, out_h, out_w);
  const Pixel one = pixel_of(1, out_h, out_w), by = pixel_of(STEP_K, out_h, out_w);
  int low_h[BLOCKS(TILE_N)],
      low_w[BLOCKS(TILE_N)];  // row and column of x that the tap reads for row and column 0 of dy
  int channel[BLOCKS(TILE_N)];
  OCL_UNROLL
  for (int i = 0; i < BLOCKS(TILE_N); ++i) {
    const int column = n0 + p / 16 * CHUNK + i * APART;
    low_h[i] = column < width ? column / C / S * dilation_h - pad_h : OUTSIDE;
    low_w[i] = column / C % S * dilation_w - pad_w;
    channel[i] = column % C;
  }
  dy += dy_offset + (long)group * K + filter;
  x += x_offset + (long)group * C;
  uint4 a_held[CHUNKS(TILE_M)], b_held[CHUNKS(TILE_N)];
  FragmentC total[FRAGS_M * FRAGS_N];
  MULTIPLY_STEPS(total, stage, steps, 0, 0, LOAD_PIXELS);

  __local float* slab = slab_of(local_memory);
  const int filters = (split * (int)get_global_size(1) + group) * K;
  UNROLL_STORES
  for (int step = 0; step < SLABS; ++step) {
    next_slab(slab, total);
    OCL_UNROLL
    for (int i = 0; i < SLAB_VECTORS; ++i) {
      const int k = m0 + slab_top(step) + slab_row(i), n = n0 + slab_left(step) + slab_column(i), c = n % C,
                s = n / C % S, r = n / C / S;
      __local const float* sums = slab + slab_row(i) * SLAB_ROW + slab_column(i);
      if (n >= width || k >= K) continue;
      if (c + VW <= STORED_C) {  // a vector lies in one tap, because C is a multiple of CHUNK
        STOREV(slab_vector(sums), filters + k, c, r, s);
      } else {
        OCL_NO_UNROLL
        for (int l = c; l < STORED_C; ++l, ++sums) STORE(*sums, filters + k, l, r, s);
      }
    }
  }
}
