// kernels/pack/group.cl: packs an operand of a matrix product into blocks of 8 KB, which gemm/packed_warpgroup.cl
// copies into local memory unchanged.
//
// The "width" of an operand is its dimension of the output: rows of A, columns of B. A block has 64 lines, one for each
// element along the width. A line has 128 bytes of one step along the depth: 32 elements of 32 bits, or 64 of 16 bits.
//
//         depth ->
//  width  +-------+-------+-- -      P[b][panel][step] has
//     64  | block | block |            one block: elements of 16 bits, or fp32 rounded to TF32 (TERMS 1)
//         +-------+-------+-- -        two blocks, the high and the low part: fp32 (TERMS 3), split into two TF32, or into
//  panel  |       |       |            two fp16 (PAIRS); with PAIRS, 64 floats follow: 1 / scale of each line
//
// The 8 chunks of 16 bytes of a line are permuted by the line (row_chunk of tensor_core/operands.cl). Elements outside
// the matrix are zeros. With PAIRS, the scale of a line is the power of two that brings its largest element to 2^14 or
// above, below 2^15: high is fp16(scale x), and low is fp16((scale x - high) * 2^11).
//
// Element (b, w, k) of the operand is at x_offset + (b / inner)*outer + (b % inner)*inner_stride + w*along_width +
//   k*along_depth.
// Grid: (ceil(steps / 2), panels, batch) work-groups if the depth is contiguous (MAJOR 1), otherwise with the first two
//   exchanged: work-groups that are neighbours in memory run at the same time. Local size (256, 1, 1): 128 work-items a
//   step.
// Epilogue macros: STOREV(quad, b, panel, step, at): four floats, or the bits of eight elements of 16 bits. Store
//   dimension `at`, VW = 4.
// Macros of a launch: MAJOR (the contiguous dimension: 1 the depth, 0 the width, 2 neither), CHUNKED (1: the other
//   strides are multiples of a chunk, and chunks lie along the contiguous dimension), TERMS and PAIRS (see above).
#if defined(IN_BF16) || defined(IN_HALF)
#define HALVES 1
#define OPERAND_T ushort
#define CHUNK 8  // elements of 16 bytes
#else
#define HALVES 0
#define OPERAND_T float
#define CHUNK 4
#endif
#define STEP (HALVES || PAIRS ? 64 : 32)  // elements of the depth in a block
#define BLOCK 2048  // floats
#define STEP_FLOATS (PAIRS ? 2 * BLOCK + 64 : !HALVES && TERMS == 3 ? 2 * BLOCK : BLOCK)

// Returns CHUNK elements of `from`, `stride` elements apart, as 16 bytes. The first `valid` elements are inside the
// matrix; the others are zeros. direct: 1 if all are inside, `stride` is 1 and `from` lies at a multiple of 16 bytes.
ALWAYS_INLINE uint4 chunk_at(__global const OPERAND_T* from, const long stride, const int valid, const int direct) {
  if (direct) return *(__global const uint4*)from;
  OPERAND_T x[CHUNK];
  OCL_UNROLL
  for (int j = 0; j < CHUNK; ++j) x[j] = j < valid ? from[j * stride] : 0;
#if HALVES
  return (uint4)(x[0] | (uint)x[1] << 16, x[2] | (uint)x[3] << 16, x[4] | (uint)x[5] << 16, x[6] | (uint)x[7] << 16);
#else
  return as_uint4((float4)(x[0], x[1], x[2], x[3]));
#endif
}
// Returns the offset of a chunk of a line in a block, in floats.
ALWAYS_INLINE int place(const int line, const int chunk) {
  return line * 32 + (chunk ^ (line & 7)) * 4;
}

// Reads chunks of a block: `x` is its first element. over, down: strides along the width and along the depth. `wide`
// elements of the width and `deep` of the depth are inside the matrix. direct: 1 if the whole block is inside, and each
// chunk can be read as 16 bytes.
#if HALVES
// Writes to `chunks` the four chunks of work-item p.
ALWAYS_INLINE void read_block(uint4* chunks, __global const OPERAND_T* x, const int p, const long over, const long down,
                              const int wide, const int deep, const int direct) {
  const int chunk = p & 7;
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int w = (p >> 3) + 16 * i, k = chunk * CHUNK;
    chunks[i] = chunk_at(x + w * over + k * down, down, w < wide ? deep - k : 0, direct);
  }
}
#else
// Writes to `chunks` the elements of four lines from `w` on, at depths k .. k + 3. 8 neighbouring work-items are
// neighbours along the depth, so they read and write whole lines whichever dimension is contiguous.
ALWAYS_INLINE void read_square(uint4* chunks, __global const OPERAND_T* x, const int w, const int k, const long over,
                               const long down, const int wide, const int deep, const int direct) {
  OCL_UNROLL
  for (int j = 0; j < 4; ++j)
    chunks[j] = MAJOR == 0 ? chunk_at(x + w * over + (k + j) * down, over, k + j < deep ? wide - w : 0, direct)
                           : chunk_at(x + (w + j) * over + k * down, down, w + j < wide ? deep - k : 0, direct);
#if MAJOR == 0
  const uint4 a = chunks[0], b = chunks[1], c = chunks[2], d = chunks[3];
  chunks[0] = (uint4)(a.x, b.x, c.x, d.x);
  chunks[1] = (uint4)(a.y, b.y, c.y, d.y);
  chunks[2] = (uint4)(a.z, b.z, c.z, d.z);
  chunks[3] = (uint4)(a.w, b.w, c.w, d.w);
#endif
}
#endif

#if PAIRS
// The bits of x as fp16, and the float that they stand for.
ALWAYS_INLINE uint half_bits(const float x) {
  ushort bits;
  vstore_half_rte(x, 0, (__private half*)&bits);
  return bits;
}
ALWAYS_INLINE float half_value(const uint bits) {
  const ushort half_bits = bits;
  return vload_half(0, (__private const half*)&half_bits);
}
// Returns the scale of a line whose largest element has the size `largest`: from 2^-114 to 2^126, so that 1 / scale is
// a normal float.
ALWAYS_INLINE float line_scale(const float largest) {
  return as_float(clamp(127 + 14 + 127 - (int)(as_uint(largest) >> 23), 1, 253) << 23);
}
// Writes the high and the low parts of eight elements: `first`, then `last`.
ALWAYS_INLINE void split_pairs(uint4* high, uint4* low, const float4 first, const float4 last, const float scale) {
  const float x[8] = {first.x, first.y, first.z, first.w, last.x, last.y, last.z, last.w};
  uint upper[8], lower[8];
  OCL_UNROLL
  for (int i = 0; i < 8; ++i) {
    upper[i] = half_bits(x[i] * scale);
    lower[i] = half_bits((x[i] * scale - half_value(upper[i])) * 2048.0f);
  }
  *high = (uint4)(upper[0] | upper[1] << 16, upper[2] | upper[3] << 16, upper[4] | upper[5] << 16,
                  upper[6] | upper[7] << 16);
  *low = (uint4)(lower[0] | lower[1] << 16, lower[2] | lower[3] << 16, lower[4] | lower[5] << 16,
                 lower[6] | lower[7] << 16);
}
ALWAYS_INLINE float largest_of(const uint4 first, const uint4 last) {
  const float4 x = fmax(fabs(as_float4(first)), fabs(as_float4(last)));
  return fmax(fmax(x.x, x.y), fmax(x.z, x.w));
}
#endif

__kernel
    __attribute__((reqd_work_group_size(256, 1, 1))) THREAD_SIZE void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int p = get_local_id(0) & 127, batch = get_group_id(2);
  const int panel = get_group_id(MAJOR == 1 ? 1 : 0),
            step = get_group_id(MAJOR == 1 ? 0 : 1) * 2 + (get_local_id(0) >> 7);
  const int panels = (width + 63) / 64, steps = (depth + STEP - 1) / STEP;
  const int wide = width - panel * 64, deep = depth - step * STEP;  // elements from here on in the matrix
  const long over = MAJOR == 0 ? 1 : along_width, down = MAJOR == 1 ? 1 : along_depth;
  const int direct = CHUNKED && x_offset % CHUNK == 0 && wide >= 64 && deep >= STEP;
  x += x_offset + batch / inner * outer + batch % inner * inner_stride + (long)panel * 64 * over +
       (long)step * STEP * down;
#if PAIRS
  // A work-item packs one chunk of each of four lines: elements k .. k + 7.
  __local float largest[2][64][9];  // [step of the work-group][line][chunk], padded for the banks of local memory
  __local float (*lines)[9] = largest[get_local_id(0) >> 7];
  const int w = (p >> 3) * 4, k = (p & 7) * 8;
  uint4 first[4], last[4];
  if (direct) {
    read_square(first, x, w, k, over, down, 64, STEP, 1);
    read_square(last, x, w, k + 4, over, down, 64, STEP, 1);
  } else {
    read_square(first, x, w, k, over, down, wide, deep, 0);
    read_square(last, x, w, k + 4, over, down, wide, deep, 0);
  }
  OCL_UNROLL
  for (int j = 0; j < 4; ++j) lines[w + j][p & 7] = largest_of(first[j], last[j]);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (step >= steps) return;
  float inverse[4];
  OCL_UNROLL
  for (int j = 0; j < 4; ++j) {
    float most = 0.0f;
    OCL_UNROLL
    for (int i = 0; i < 8; ++i) most = fmax(most, lines[w + j][i]);
    const float scale = line_scale(most);
    uint4 high, low;
    split_pairs(&high, &low, as_float4(first[j]), as_float4(last[j]), scale);
    STOREV(as_float4(high), batch, panel, step, place(w + j, p & 7));
    STOREV(as_float4(low), batch, panel, step, BLOCK + place(w + j, p & 7));
    inverse[j] = as_float((254u << 23) - as_uint(scale));
  }
  if ((p & 7) == 0) STOREV((float4)(inverse[0], inverse[1], inverse[2], inverse[3]), batch, panel, step, 2 * BLOCK + w);
#else
  if (step >= steps) return;
  uint4 chunks[4];
#if HALVES
  if (direct)
    read_block(chunks, x, p, over, down, 64, STEP, 1);
  else
    read_block(chunks, x, p, over, down, wide, deep, 0);
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) STOREV(as_float4(chunks[i]), batch, panel, step, place((p >> 3) + 16 * i, p & 7));
#else
  const int w = (p >> 3) * 4, k = (p & 7) * 4;
  if (direct)
    read_square(chunks, x, w, k, over, down, 64, STEP, 1);
  else
    read_square(chunks, x, w, k, over, down, wide, deep, 0);
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    // The nearest TF32, ties away from zero. Tensor cores ignore the 13 lowest bits of the low part.
    const float4 high = as_float4((chunks[i] + 0x1000u) & 0xFFFFE000u);
    STOREV(high, batch, panel, step, place(w + i, p & 7));
#if TERMS == 3
    STOREV(as_float4(as_uint4(as_float4(chunks[i]) - high) + 0x1000u), batch, panel, step, BLOCK + place(w + i, p & 7));
#endif
  }
#endif
#endif
}
