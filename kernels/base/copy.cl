// kernels/base/copy.cl: dst[i] = (DST)src[i] for any strides. i runs over up to 8 dimensions, innermost first; "place" is an
// index over all outer dimensions. Without ROWS, a work-item copies `chunk` neighbours of the innermost dimension:
//
//        get_global_id(0) ->   0..chunk-1 | chunk..2*chunk-1 | ...      innermost: size[0] elements
//        get_global_id(1)  |   place 0                                  outer: size[1] * size[2] * ... places
//                          v   place 1
//
// The macro ROWS selects a form for GPUs. It requires that the innermost stride of dst is 1, and that of src 0 or 1. `width`
// work-items copy a row. Each copies CHUNK elements that are `width` elements apart, so that accesses of neighbouring work-items
// are coalesced. With the macro VECTORS, each copies one aligned vector of CHUNK elements.
//
// The macro CROSSED selects a form for transpositions on GPUs. The innermost stride of dst is 1, and src is contiguous in dimension
// 1, whose size and strides count vectors of CHUNK elements. A work-item reads one vector, and stores its elements to CHUNK rows,
// which the neighbouring work-items continue.
//
// The macro LANES selects forms for CPUs: rows are copied by vectors of LANES elements, which CPUs' compilers do not make of loops.
// With RUNS as well, dimension 1 counts `step` rows, which a work-item copies one after the other. With TILED as well, src is
// contiguous in dimension 1, whose size and strides count LANES elements: a work-item turns squares of LANES x LANES elements in
// private memory, so that it reads and writes whole cache lines.
//
// The macro FILL stores shape.value, an integer of SRC's type, and reads nothing.
//
// Macros of a launch: NAME (of the kernel), CHUNK (with ROWS or CROSSED), SRC and DST (the element types, such as f8e4m3), SRC_T and
//   DST_T (their types in memory), SRC_KIND and DST_KIND (how they are loaded and stored, see below). F8 needs floats8.cl before this
//   file, and BFLOAT as DST_KIND bfloat16.cl. With LANES, CELL is SRC_T in private memory, where half is not allowed.
#ifndef PLACE
#define PLACE uint  // type of a place, or with ROWS of a work-item's number; ulong from 2^32 on
#endif
// VECTORS, CROSSED: src's stride is 1, and rows are aligned to SRC_VECTOR and DST_VECTOR, vectors of CHUNK integers as large as an
// element.
#ifdef USES_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)

// Converts an element to a number: integers to long, half, bfloat16 and 8-bit floats to float. NUMBER: no conversion.
#define LOAD_NUMBER(p, i) p[i]
#define LOAD_BOOL(p, i) (long)(p[i] != 0)
#define LOAD_INT(p, i) (long)p[i]
#define LOAD_HALF(p, i) vload_half(i, p)
#define LOAD_BFLOAT(p, i) as_float((uint)p[i] << 16)
#define LOAD_F8(p, i) GLUE(GLUE(op_, SRC), _value)((uint)p[i])
#define LOAD(p, i) GLUE(LOAD_, SRC_KIND)(p, i)

// Converts a number to an element as a C++ cast does it; float to a narrow integer goes through long, as in PyTorch.
#define STORE_NUMBER(p, i, v) p[i] = (DST_T)(v)
#define STORE_BOOL(p, i, v) p[i] = (v) != 0
#define STORE_INT(p, i, v) p[i] = (DST_T)(long)(v)
#define STORE_HALF(p, i, v) vstore_half_rte((float)(v), i, p)
#define STORE_BFLOAT(p, i, v) p[i] = bfloat16_bits((float)(v))
#define STORE_F8(p, i, v) p[i] = (DST_T)GLUE(GLUE(op_, DST), _bits)(GLUE(op_round_, DST)((float)(v)))
#define STORE(p, i, v) GLUE(STORE_, DST_KIND)(p, i, v)

#ifndef LANES
#define LANES 1
#else
// The same for LANES = 16 elements from p[i]. 8-bit floats and raw16 have no vectors.
#define READ_NUMBER(p, i) vload16(0, (p) + (i))
#define READ_BOOL(p, i) (convert_long16(vload16(0, (p) + (i)) != (uchar16)(0)) & (long16)(1))
#define READ_INT(p, i) convert_long16(vload16(0, (p) + (i)))
#define READ_HALF(p, i) vload_half16(0, (p) + (i))
#define READ_BFLOAT(p, i) as_float16(convert_uint16(vload16(0, (p) + (i))) << 16)
#define READ(p, i) GLUE(READ_, SRC_KIND)(p, i)

#define CONVERT GLUE(GLUE(convert_, DST_T), 16)
#define WRITE_NUMBER(p, i, v) vstore16(CONVERT(v), 0, (p) + (i))
#define WRITE_BOOL(p, i, v) vstore16(convert_uchar16((v) != 0) & (uchar16)(1), 0, (p) + (i))
#define WRITE_INT(p, i, v) vstore16(CONVERT(convert_long16(v)), 0, (p) + (i))
#define WRITE_HALF(p, i, v) vstore_half16_rte(convert_float16(v), 0, (p) + (i))
#define WRITE_BFLOAT(p, i, v) vstore16(bfloat16_bits16(convert_float16(v)), 0, (p) + (i))
#define WRITE(p, i, v) GLUE(WRITE_, DST_KIND)(p, i, v)
#endif

// Strides in elements. Dimensions from `dims` on have size 1.
typedef struct {
  ulong size[8];
  ulong src_stride[8];
  ulong dst_stride[8];
  ulong places;  // size[1] * size[2] * ...
  ulong dims;
  ulong rows;  // With TILED or RUNS: the elements of dimension 1.
  ulong chunk, step, value;
} Shape;

#ifdef FILL
#define LOADED(p, i) (SRC_T) shape.value
#else
#define LOADED(p, i) LOAD(p, i)
#endif

__kernel void NAME(__global const SRC_T* src, const ulong src_offset,  // offsets in elements
                   __global DST_T* dst, const ulong dst_offset, const Shape shape) {
  // The global size is rounded up to whole work-groups.
#if defined(ROWS) || defined(CROSSED)
#ifdef CROSSED
  const PLACE width = (PLACE)shape.size[0];
#else
  const PLACE width = (PLACE)((shape.size[0] + CHUNK - 1) / CHUNK);
#endif
  PLACE place = (PLACE)get_global_id(0) / width;
  const PLACE column = (PLACE)get_global_id(0) % width;
  if (place >= shape.places) return;
#else
  PLACE place = (PLACE)get_global_id(1);
  const ulong begin = (ulong)get_global_id(0) * shape.chunk;
  if (place >= shape.places || begin >= shape.size[0]) return;
#endif
  ulong s = src_offset, d = dst_offset;
#if defined(TILED) || defined(RUNS)
  const uint rows = (uint)min(shape.step, shape.rows - place % (PLACE)shape.size[1] * shape.step);
#else
  const uint rows = 1;
#endif
  for (uint k = 1; k < (uint)shape.dims; ++k) {
    const PLACE size = (PLACE)shape.size[k];
    const PLACE i = place % size;
    place /= size;
    s += i * shape.src_stride[k];
    d += i * shape.dst_stride[k];
  }
#ifdef VECTORS
  const SRC_VECTOR read = *(__global const SRC_VECTOR*)(src + s + (ulong)column * CHUNK);
  DST_VECTOR written;
  __private const SRC_T* from = (__private const SRC_T*)&read;
  __private DST_T* to = (__private DST_T*)&written;
  for (uint k = 0; k < CHUNK; ++k) STORE(to, k, LOAD(from, k));
  *(__global DST_VECTOR*)(dst + d + (ulong)column * CHUNK) = written;
#elif defined(CROSSED)
  const SRC_VECTOR read = *(__global const SRC_VECTOR*)(src + s + column * shape.src_stride[0]);
  __private const SRC_T* from = (__private const SRC_T*)&read;
  const ulong row = shape.dst_stride[1] / CHUNK;
  for (uint k = 0; k < CHUNK; ++k) STORE(dst, d + column + k * row, LOAD(from, k));
#elif defined(ROWS)
  for (uint k = 0; k < CHUNK; ++k) {
    const ulong i = column + k * (ulong)width;
    if (i < shape.size[0]) STORE(dst, d + i, LOADED(src, s + i * shape.src_stride[0]));
  }
#elif defined(TILED)
  const ulong end = min(begin + shape.chunk, shape.size[0]), src_step = shape.src_stride[0],
              dst_row = shape.dst_stride[1] / LANES;
  for (ulong i = begin; i < end; i += LANES) {
    if (rows < LANES || i + LANES > end) {
      for (uint row = 0; row < rows; ++row)
        for (ulong k = i; k < min(i + LANES, end); ++k)
          STORE(dst, d + row * dst_row + k, LOAD(src, s + k * src_step + row));
      continue;
    }
    CELL square[LANES * LANES], line[LANES];
    __global const CELL* from = (__global const CELL*)(src + s + i * src_step);
    for (uint k = 0; k < LANES; ++k) vstore16(vload16(0, from + k * src_step), 0, square + k * LANES);
    for (uint row = 0; row < LANES; ++row) {
      for (uint k = 0; k < LANES; ++k) line[k] = square[k * LANES + row];
      WRITE(dst, d + row * dst_row + i, READ((__private const SRC_T*)line, 0));
    }
  }
#else
  const ulong end = min(begin + shape.chunk, shape.size[0]);
  const ulong src_step = shape.src_stride[0], dst_step = shape.dst_stride[0];
  const ulong src_row = shape.src_stride[1] / shape.step, dst_row = shape.dst_stride[1] / shape.step;
  for (uint row = 0; row < rows; ++row, s += src_row, d += dst_row) {
    ulong i = begin;
#if LANES > 1
    if (src_step <= 1 && dst_step == 1) {
      // Aligned stores: one that crosses a cache line takes as long as two.
      if (end - begin >= 64 * LANES)
        for (; (d + i) % LANES != 0; ++i) STORE(dst, d + i, LOADED(src, s + i * src_step));
      if (src_step == 0) {
        CELL line[LANES];
#ifdef FILL
        const CELL first = (CELL)shape.value;
#else
        const CELL first = ((__global const CELL*)src)[s];
#endif
        for (uint k = 0; k < LANES; ++k) line[k] = first;
        for (; i + LANES <= end; i += LANES) WRITE(dst, d + i, READ((__private const SRC_T*)line, 0));
      }
      for (; i + LANES <= end; i += LANES) WRITE(dst, d + i, READ(src, s + i));
    }
#endif
    for (; i < end; ++i) STORE(dst, d + i * dst_step, LOADED(src, s + i * src_step));
  }
#endif
}
