// kernels/pack/group.cl: packs an operand of a matrix product into blocks of 8 KB, which gemm/packed_warpgroup.cl
// copies into local memory unchanged.
//
// The "width" of an operand is its dimension of the output: rows of A, columns of B. A block has 64 elements along the
// width, and one step along the depth: 32 elements of 32 bits, or 64 of 16 bits.
//
//         depth ->
//  width  +-------+-------+-- -      P[b][panel][step] is one block; with ROWS of fp32 two, the high and the low part.
//     64  | block | block |          FORM of a block:
//         +-------+-------+-- -        ROWS       64 lines, one per element of the width, of 128 bytes of the depth
//  panel  |       |       |            FRAGMENTS  32 bits: [4 warps][4 eighths of the depth][32 lanes][4], the order in
//                                                 which lanes load them into registers
//
// The 8 chunks of 16 bytes of a line are permuted by the line (row_chunk of tensor_core/operands.cl). Elements outside
// the matrix are zeros. ROWS of fp32: with TERMS 3 x is split into high + low, both TF32; with TERMS 1 x is rounded to
// TF32.
//
// Arguments: x, x_offset, int width, depth, inner, long outer, inner_stride, along_width, along_depth, epilogue.
//   Element (b, w, k) of the operand is at x_offset + (b / inner)*outer + (b % inner)*inner_stride + w*along_width +
//   k*along_depth.
// Grid: (ceil(steps / 2), panels, batch) work-groups if the depth is contiguous (MAJOR 1), otherwise with the first two
//   exchanged: work-groups that are neighbours in memory run at the same time. Local size (256, 1, 1): 128 work-items a
//   block.
// Epilogue macros: STOREV(quad, b, panel, step, at): four floats, or the bits of eight elements of 16 bits. Store
//   dimension `at`, VW = 4.
#ifndef KERNEL_NAME
#define KERNEL_NAME pack_group
#endif
#define ROWS 0
#define FRAGMENTS 1
#ifndef FORM
#define FORM ROWS
#endif
#ifndef MAJOR
#define MAJOR 1  // the contiguous dimension: 1 the depth, 0 the width, 2 neither
#endif
#ifndef CHUNKED
#define CHUNKED 0  // 1: the other strides are multiples of a chunk, and chunks lie along the contiguous dimension
#endif
#ifndef TERMS
#define TERMS 3
#endif
#if defined(IN_BF16) || defined(IN_HALF)
#define HALVES 1
#define OPERAND_T ushort
#define CHUNK 8  // elements of 16 bytes
#else
#define HALVES 0
#define OPERAND_T float
#define CHUNK 4
#endif
#define STEP (8 * CHUNK)  // elements of the depth in a block
#define BLOCK 2048  // floats
#define BLOCKS (!HALVES && FORM == ROWS && TERMS == 3 ? 2 : 1)  // blocks of a step
#ifndef STORE  // without generated epilogue macros: dense
#define EPILOGUE_PARAMS , __global float *y, const ulong y_offset
#define STOREV(quad, b, panel, step, at)                                                                              \
  (*(__global float4*)(y + y_offset + (((ulong)(b) * panels + (panel)) * steps + (step)) * (BLOCKS * BLOCK) + (at)) = \
       (quad))
#endif

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

// Writes to `chunks` this work-item's four chunks of a block. p: number of the work-item. over, down: strides along the
// width and along the depth. `wide` elements of the width and `deep` of the depth are inside the matrix. direct: 1 if
// the whole block is inside, and each chunk can be read as 16 bytes.
#if HALVES
ALWAYS_INLINE void read_block(uint4* chunks, __global const OPERAND_T* x, const int p, const long over, const long down,
                              const int wide, const int deep, const int direct) {
  const int chunk = p & 7;
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int w = (p >> 3) + 16 * i, k = chunk * CHUNK;
    chunks[i] = chunk_at(x + w * over + k * down, down, w < wide ? deep - k : 0, direct);
  }
}
#elif FORM == ROWS
// Reads 4 x 4 elements. 8 neighbouring work-items are neighbours along the depth, so they read and write whole lines
// whichever dimension is contiguous.
ALWAYS_INLINE void read_block(uint4* chunks, __global const OPERAND_T* x, const int p, const long over, const long down,
                              const int wide, const int deep, const int direct) {
  const int w = (p >> 3) * 4, k = (p & 7) * 4;
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

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    __global const OPERAND_T* restrict x, const ulong x_offset, const int width, const int depth, const int inner,
    const long outer, const long inner_stride, const long along_width, const long along_depth EPILOGUE_PARAMS) {
  const int p = get_local_id(0) & 127, batch = get_group_id(2);
  const int panel = get_group_id(MAJOR == 1 ? 1 : 0),
            step = get_group_id(MAJOR == 1 ? 0 : 1) * 2 + (get_local_id(0) >> 7);
  const int panels = (width + 63) / 64, steps = (depth + STEP - 1) / STEP;
  if (step >= steps) return;
  const int wide = width - panel * 64, deep = depth - step * STEP;  // elements from here on in the matrix
  const long over = MAJOR == 0 ? 1 : along_width, down = MAJOR == 1 ? 1 : along_depth;
  x += x_offset + batch / inner * outer + batch % inner * inner_stride + (long)panel * 64 * over +
       (long)step * STEP * down;
#if FORM == FRAGMENTS
  // Lane l of warp w packs rows 16w + l/4 and 16w + l/4 + 8. Of each eighth of the depth it packs elements l%4 and l%4
  // + 4.
  const int row = (p >> 5) * 16 + ((p & 31) >> 2), first = p & 3;
  OCL_UNROLL
  for (int eighth = 0; eighth < 4; ++eighth) {
    const int k = eighth * 8 + first;
    __global const float* from = x + row * over + k * down;
    const float4 quad =
        (float4)(row < wide && k < deep ? from[0] : 0.0f, row + 8 < wide && k < deep ? from[8 * over] : 0.0f,
                 row < wide && k + 4 < deep ? from[4 * down] : 0.0f,
                 row + 8 < wide && k + 4 < deep ? from[8 * over + 4 * down] : 0.0f);
    STOREV(quad, batch, panel, step, (((p >> 5) * 4 + eighth) * 32 + (p & 31)) * 4);
  }
#else
  uint4 chunks[4];
  if (CHUNKED && x_offset % CHUNK == 0 && wide >= 64 && deep >= STEP)
    read_block(chunks, x, p, over, down, 64, STEP, 1);
  else
    read_block(chunks, x, p, over, down, wide, deep, 0);
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
#if HALVES
    STOREV(as_float4(chunks[i]), batch, panel, step, place((p >> 3) + 16 * i, p & 7));
#else
    // The nearest TF32, ties away from zero. Tensor cores ignore the 13 lowest bits of the low part.
    const float4 high = as_float4((chunks[i] + 0x1000u) & 0xFFFFE000u);
    STOREV(high, batch, panel, step, place((p >> 3) * 4 + i, p & 7));
#if TERMS == 3
    STOREV(as_float4(as_uint4(as_float4(chunks[i]) - high) + 0x1000u), batch, panel, step,
           BLOCK + place((p >> 3) * 4 + i, p & 7));
#endif
#endif
  }
#endif
}
