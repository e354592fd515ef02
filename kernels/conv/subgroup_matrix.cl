// kernels/conv/subgroup_matrix.cl: 2-D convolution by matrix instructions of a subgroup as an implicit GEMM, forward and
// (DATA_GRADIENT) gradient with respect to the input.
//
// Formulas and the phases of a strided gradient are those of conv/group.cl. The instructions, the loop and
// the slabs of the stores are in tensor_core/subgroup_matrix.cl, the taps are in conv/taps.cl. GEMM with M = pixels of
// y, N = produced channels k, depth = the used taps (r, s), and for each tap its channels c. A chunk of the depth (16
// bytes) has channels of one tap. So C is a multiple of CHUNK, and a step may include several taps.
//
// x_c is 1; C and the other strides are multiples of CHUNK.
//   w packed [groups * K][R][S][C]: forward from weight [groups*K, C, R, S], gradient from weight [groups*C, K, R, S].
// Grid: global (ceil(pixels/TILE_M) * ceil(K/TILE_N) * GROUP_SIZE, groups, phases), local (GROUP_SIZE, 1, 1). Pixels
//   and phases as for conv/group.cl.
// Epilogue macros: STORE(acc, n, k, h, w), k over all groups. Store dimension k, VW 2 or as many elements as 16 bytes
//   have.
#define ROWS_APART (GROUP_SIZE / 4)  // pixels or filters from one chunk of a work-item to the next
#define A_CHUNKS ROW_CHUNKS(TILE_M)
#define B_CHUNKS ROW_CHUNKS(TILE_N)
// Loads this work-item's chunk of a step, at position `at` of the depth, for its A_CHUNKS pixels and B_CHUNKS filters.
#define LOAD_TAPS                                                                                                   \
  {                                                                                                                 \
    const int over_h = down.shift - at.r * down.pixel_step, over_w = across.shift - at.s * across.pixel_step;       \
    const int shift = over_h * x_h + over_w * x_w + at.c, used = at.r < down.count, of_filter = TAP(at) * C + at.c; \
    OCL_UNROLL                                                                                                      \
    for (int i = 0; i < A_CHUNKS; ++i) {                                                                            \
      const int h = (places[i] >> 16) + over_h, v = (short)(places[i] & 0xffff) + over_w;                           \
      const int inside = used && (uint)h < (uint)in_h && (uint)v < (uint)in_w;                                      \
      a_held[i] = load_chunk(inside ? from[i] + shift : x, 1, inside ? CHUNK : 0, aligned);                         \
    }                                                                                                               \
    OCL_UNROLL                                                                                                      \
    for (int i = 0; i < B_CHUNKS; ++i) {                                                                            \
      const int inside = used && k0 + row + i * ROWS_APART < K;                                                     \
      b_held[i] = load_chunk(inside ? filters + (i * w_rows + of_filter) : w, 1, inside ? CHUNK : 0, 1);            \
    }                                                                                                               \
    at = advance(at, STEP_K, C, across.count);                                                                      \
  }

// x: [batch, groups * C, in_h, in_w] by strides; w: [groups * K][R][S][C]
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) SUBGROUP_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local uint4 local_memory[LOCAL_BYTES / 16];
  __local OPERAND_T* stage = (__local OPERAND_T*)local_memory;
#if DATA_GRADIENT
  const int step_h = stride_h, step_w = stride_w;
  const int phase_h = (int)get_group_id(2) / stride_w, phase_w = (int)get_group_id(2) % stride_w;
#else
  const int step_h = 1, step_w = 1, phase_h = 0, phase_w = 0;
#endif
  const int rows = (out_h + step_h - 1) / step_h, columns = (out_w + step_w - 1) / step_w,
            pixels = batch * rows * columns;
  const int group = get_group_id(1), p = get_local_id(0), chunk = p % 4, row = p / 4, aligned = CHUNK_ALIGNED(x_offset);
  const Taps down = taps_of(R, phase_h, pad_h, stride_h, dilation_h),
             across = taps_of(S, phase_w, pad_w, stride_w, dilation_w);
  const int2 tile = tile_at(get_group_id(0), (pixels + TILE_M - 1) / TILE_M, (K + TILE_N - 1) / TILE_N);
  const int k0 = tile.y * TILE_N;
  __global const OPERAND_T* from[A_CHUNKS];
  int places[A_CHUNKS];  // row and column of x that the pixel reads at shift 0, 16 bits each
  OCL_UNROLL
  for (int i = 0; i < A_CHUNKS; ++i) {
    const int m = tile.x * TILE_M + row + i * ROWS_APART, column = m % columns, line = m / columns % rows,
              n = m / columns / rows;
    const int h = m < pixels ? DATA_GRADIENT ? line : line * stride_h - pad_h : OUTSIDE;
    const int v = DATA_GRADIENT ? column : column * stride_w - pad_w;
    from[i] = x + (x_offset + min(n, batch - 1) * x_n + (long)group * C + h * (long)x_h + v * (long)x_w);
    places[i] = (h << 16) | (v & 0xffff);
  }
  __global const OPERAND_T* filters = w + (w_offset + ((long)group * K + k0 + row) * R * S * C);
  const int w_rows = ROWS_APART * R * S * C, depth = down.count * across.count * C;
  const TapPosition begin = {0, 0, 0};
  TapPosition at = advance(begin, chunk * CHUNK, C, across.count);
  uint4 a_held[A_CHUNKS], b_held[B_CHUNKS];
  FragmentC total[FRAGS_M * FRAGS_N];
  MULTIPLY_STEPS(total, stage, (depth + STEP_K - 1) / STEP_K, 1, 1, LOAD_TAPS);

  __local float* slab = slab_of(local_memory);
  // whole: 1 if no element of the work-group's tile lies outside. If the strides do not divide the sizes, the last row
  // or column of a phase may lie outside.
  const int whole = STORES_ALIGNED && (tile.x + 1) * TILE_M <= pixels && (tile.y + 1) * TILE_N <= K &&
                    rows * step_h == out_h && columns * step_w == out_w;
  UNROLL_STORES
  for (int step = 0; step < SLABS; ++step) {
    next_slab(slab, total);
    const int m0 = tile.x * TILE_M + slab_top(step), n0 = k0 + slab_left(step);
    if (whole) {
      OCL_UNROLL
      for (int i = 0; i < SLAB_VECTORS; ++i) {
        const int pixel = m0 + slab_row(i);
        STOREA(slab_vector(slab + slab_row(i) * SLAB_ROW + slab_column(i)), pixel / columns / rows,
               group * K + n0 + slab_column(i), pixel / columns % rows * step_h + phase_h,
               pixel % columns * step_w + phase_w);
      }
      continue;
    }
    OCL_NO_UNROLL
    for (int i = 0; i < SLAB_VECTORS; ++i) {
      const int pixel = m0 + slab_row(i), k = n0 + slab_column(i), n = pixel / columns / rows;
      const int h = pixel / columns % rows * step_h + phase_h, v = pixel % columns * step_w + phase_w;
      __local const float* sums = slab + slab_row(i) * SLAB_ROW + slab_column(i);
      if (pixel >= pixels || h >= out_h || v >= out_w) continue;
      if (k + VW <= K) {
        STOREV(slab_vector(sums), n, group * K + k, h, v);
      } else {
        OCL_NO_UNROLL
        for (int l = k; l < K; ++l, ++sums) STORE(*sums, n, group * K + l, h, v);
      }
    }
  }
}
