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
// Macros of a launch: NAME (of the kernel), CHUNK (with ROWS or CROSSED), SRC and DST (element types: boolean u8 i8 i16 i32 i64 u16 u32 u64 f16 bf16
//   f32 f64 f8e4m3 f8e5m2 f8e4m3fnuz f8e5m2fnuz (these need floats8.cl before this file, and bf16 as DST bfloat16.cl), or raw1
//   raw2 raw4 raw8 raw16 for both: bytes as they are).
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

// The type of an element in memory.
#define ELEMENT_raw1 uchar
#define ELEMENT_raw2 ushort
#define ELEMENT_raw4 uint
#define ELEMENT_raw8 ulong
#define ELEMENT_raw16 ulong2
#define ELEMENT_boolean uchar
#define ELEMENT_u8 uchar
#define ELEMENT_i8 char
#define ELEMENT_i16 short
#define ELEMENT_i32 int
#define ELEMENT_i64 long
#define ELEMENT_u16 ushort
#define ELEMENT_u32 uint
#define ELEMENT_u64 ulong
#define ELEMENT_f16 half
#define ELEMENT_bf16 ushort
#define ELEMENT_f32 float
#define ELEMENT_f64 double
#define ELEMENT_f8e4m3 uchar
#define ELEMENT_f8e5m2 uchar
#define ELEMENT_f8e4m3fnuz uchar
#define ELEMENT_f8e5m2fnuz uchar

// LOAD_*: converts an element to a number: integers to long (u64 to ulong), half, bfloat16 and 8-bit floats to float.
#define LOAD_raw1(p, i) p[i]
#define LOAD_raw2(p, i) p[i]
#define LOAD_raw4(p, i) p[i]
#define LOAD_raw8(p, i) p[i]
#define LOAD_raw16(p, i) p[i]
#define LOAD_boolean(p, i) (long)(p[i] != 0)
#define LOAD_u8(p, i) (long)p[i]
#define LOAD_i8(p, i) (long)p[i]
#define LOAD_i16(p, i) (long)p[i]
#define LOAD_i32(p, i) (long)p[i]
#define LOAD_i64(p, i) p[i]
#define LOAD_u16(p, i) (long)p[i]
#define LOAD_u32(p, i) (long)p[i]
#define LOAD_u64(p, i) p[i]
#define LOAD_f16(p, i) vload_half(i, p)
#define LOAD_bf16(p, i) as_float((uint)p[i] << 16)
#define LOAD_f32(p, i) p[i]
#define LOAD_f64(p, i) p[i]
#define LOAD_f8e4m3(p, i) op_f8e4m3_value((uint)p[i])
#define LOAD_f8e5m2(p, i) op_f8e5m2_value((uint)p[i])
#define LOAD_f8e4m3fnuz(p, i) op_f8e4m3fnuz_value((uint)p[i])
#define LOAD_f8e5m2fnuz(p, i) op_f8e5m2fnuz_value((uint)p[i])

// STORE_*: converts a number to an element as a C++ cast does it; float to a narrow integer goes through long, as in
// PyTorch.
#define STORE_raw1(p, i, v) p[i] = v
#define STORE_raw2(p, i, v) p[i] = v
#define STORE_raw4(p, i, v) p[i] = v
#define STORE_raw8(p, i, v) p[i] = v
#define STORE_raw16(p, i, v) p[i] = v
#define STORE_boolean(p, i, v) p[i] = (v) != 0
#define STORE_u8(p, i, v) p[i] = (uchar)(long)(v)
#define STORE_i8(p, i, v) p[i] = (char)(long)(v)
#define STORE_i16(p, i, v) p[i] = (short)(long)(v)
#define STORE_i32(p, i, v) p[i] = (int)(long)(v)
#define STORE_i64(p, i, v) p[i] = (long)(v)
#define STORE_u16(p, i, v) p[i] = (ushort)(long)(v)
#define STORE_u32(p, i, v) p[i] = (uint)(long)(v)
#define STORE_u64(p, i, v) p[i] = (ulong)(v)
#define STORE_f16(p, i, v) vstore_half_rte((float)(v), i, p)
#define STORE_bf16(p, i, v) p[i] = bfloat16_bits((float)(v))
#define STORE_f32(p, i, v) p[i] = (float)(v)
#define STORE_f64(p, i, v) p[i] = (double)(v)
#define STORE_f8e4m3(p, i, v) p[i] = (uchar)op_f8e4m3_bits(op_round_f8e4m3((float)(v)))
#define STORE_f8e5m2(p, i, v) p[i] = (uchar)op_f8e5m2_bits(op_round_f8e5m2((float)(v)))
#define STORE_f8e4m3fnuz(p, i, v) p[i] = (uchar)op_f8e4m3fnuz_bits(op_round_f8e4m3fnuz((float)(v)))
#define STORE_f8e5m2fnuz(p, i, v) p[i] = (uchar)op_f8e5m2fnuz_bits(op_round_f8e5m2fnuz((float)(v)))

#ifndef LANES
#define LANES 1
#else
// The type of an element in private memory, where half is not allowed.
#define CELL_raw1 uchar
#define CELL_raw2 ushort
#define CELL_raw4 uint
#define CELL_raw8 ulong
#define CELL_boolean uchar
#define CELL_u8 uchar
#define CELL_i8 char
#define CELL_i16 short
#define CELL_i32 int
#define CELL_i64 long
#define CELL_u16 ushort
#define CELL_u32 uint
#define CELL_f16 ushort
#define CELL_bf16 ushort
#define CELL_f32 float
#define CELL_f64 double
#define CELL GLUE(CELL_, SRC)

// LOAD_* and STORE_* for LANES = 16 elements from p[i]. 8-bit floats and raw16 have no vectors.
#define READ_raw1(p, i) vload16(0, (p) + (i))
#define READ_raw2(p, i) vload16(0, (p) + (i))
#define READ_raw4(p, i) vload16(0, (p) + (i))
#define READ_raw8(p, i) vload16(0, (p) + (i))
#define READ_boolean(p, i) (convert_long16(vload16(0, (p) + (i)) != (uchar16)(0)) & (long16)(1))
#define READ_u8(p, i) convert_long16(vload16(0, (p) + (i)))
#define READ_i8(p, i) convert_long16(vload16(0, (p) + (i)))
#define READ_i16(p, i) convert_long16(vload16(0, (p) + (i)))
#define READ_i32(p, i) convert_long16(vload16(0, (p) + (i)))
#define READ_i64(p, i) vload16(0, (p) + (i))
#define READ_u16(p, i) convert_long16(vload16(0, (p) + (i)))
#define READ_u32(p, i) convert_long16(vload16(0, (p) + (i)))
#define READ_f16(p, i) vload_half16(0, (p) + (i))
#define READ_bf16(p, i) as_float16(convert_uint16(vload16(0, (p) + (i))) << 16)
#define READ_f32(p, i) vload16(0, (p) + (i))
#define READ_f64(p, i) vload16(0, (p) + (i))

#define WRITE_raw1(p, i, v) vstore16(v, 0, (p) + (i))
#define WRITE_raw2(p, i, v) vstore16(v, 0, (p) + (i))
#define WRITE_raw4(p, i, v) vstore16(v, 0, (p) + (i))
#define WRITE_raw8(p, i, v) vstore16(v, 0, (p) + (i))
#define WRITE_boolean(p, i, v) vstore16(convert_uchar16((v) != 0) & (uchar16)(1), 0, (p) + (i))
#define WRITE_u8(p, i, v) vstore16(convert_uchar16(convert_long16(v)), 0, (p) + (i))
#define WRITE_i8(p, i, v) vstore16(convert_char16(convert_long16(v)), 0, (p) + (i))
#define WRITE_i16(p, i, v) vstore16(convert_short16(convert_long16(v)), 0, (p) + (i))
#define WRITE_i32(p, i, v) vstore16(convert_int16(convert_long16(v)), 0, (p) + (i))
#define WRITE_i64(p, i, v) vstore16(convert_long16(v), 0, (p) + (i))
#define WRITE_u16(p, i, v) vstore16(convert_ushort16(convert_long16(v)), 0, (p) + (i))
#define WRITE_u32(p, i, v) vstore16(convert_uint16(convert_long16(v)), 0, (p) + (i))
#define WRITE_f16(p, i, v) vstore_half16_rte(convert_float16(v), 0, (p) + (i))
#define WRITE_bf16(p, i, v) vstore16(bfloat16_bits16(convert_float16(v)), 0, (p) + (i))
#define WRITE_f32(p, i, v) vstore16(convert_float16(v), 0, (p) + (i))
#define WRITE_f64(p, i, v) vstore16(convert_double16(v), 0, (p) + (i))
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
#define LOADED(p, i) (GLUE(ELEMENT_, SRC)) shape.value
#else
#define LOADED(p, i) GLUE(LOAD_, SRC)(p, i)
#endif

__kernel void NAME(__global const GLUE(ELEMENT_, SRC) * src, const ulong src_offset,  // offsets in elements
                   __global GLUE(ELEMENT_, DST) * dst, const ulong dst_offset, const Shape shape) {
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
  __private const GLUE(ELEMENT_, SRC)* from = (__private const GLUE(ELEMENT_, SRC)*)&read;
  __private GLUE(ELEMENT_, DST)* to = (__private GLUE(ELEMENT_, DST)*)&written;
  for (uint k = 0; k < CHUNK; ++k) GLUE(STORE_, DST)(to, k, GLUE(LOAD_, SRC)(from, k));
  *(__global DST_VECTOR*)(dst + d + (ulong)column * CHUNK) = written;
#elif defined(CROSSED)
  const SRC_VECTOR read = *(__global const SRC_VECTOR*)(src + s + column * shape.src_stride[0]);
  __private const GLUE(ELEMENT_, SRC)* from = (__private const GLUE(ELEMENT_, SRC)*)&read;
  const ulong row = shape.dst_stride[1] / CHUNK;
  for (uint k = 0; k < CHUNK; ++k) GLUE(STORE_, DST)(dst, d + column + k * row, GLUE(LOAD_, SRC)(from, k));
#elif defined(ROWS)
  for (uint k = 0; k < CHUNK; ++k) {
    const ulong i = column + k * (ulong)width;
    if (i < shape.size[0]) GLUE(STORE_, DST)(dst, d + i, LOADED(src, s + i * shape.src_stride[0]));
  }
#elif defined(TILED)
  const ulong end = min(begin + shape.chunk, shape.size[0]), src_step = shape.src_stride[0],
              dst_row = shape.dst_stride[1] / LANES;
  for (ulong i = begin; i < end; i += LANES) {
    if (rows < LANES || i + LANES > end) {
      for (uint row = 0; row < rows; ++row)
        for (ulong k = i; k < min(i + LANES, end); ++k)
          GLUE(STORE_, DST)(dst, d + row * dst_row + k, GLUE(LOAD_, SRC)(src, s + k * src_step + row));
      continue;
    }
    CELL square[LANES * LANES], line[LANES];
    __global const CELL* from = (__global const CELL*)(src + s + i * src_step);
    for (uint k = 0; k < LANES; ++k) vstore16(vload16(0, from + k * src_step), 0, square + k * LANES);
    for (uint row = 0; row < LANES; ++row) {
      for (uint k = 0; k < LANES; ++k) line[k] = square[k * LANES + row];
      GLUE(WRITE_, DST)(dst, d + row * dst_row + i, GLUE(READ_, SRC)((__private const GLUE(ELEMENT_, SRC)*)line, 0));
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
        for (; (d + i) % LANES != 0; ++i) GLUE(STORE_, DST)(dst, d + i, LOADED(src, s + i * src_step));
      if (src_step == 0) {
        CELL line[LANES];
#ifdef FILL
        const CELL first = (CELL)shape.value;
#else
        const CELL first = ((__global const CELL*)src)[s];
#endif
        for (uint k = 0; k < LANES; ++k) line[k] = first;
        for (; i + LANES <= end; i += LANES)
          GLUE(WRITE_, DST)(dst, d + i, GLUE(READ_, SRC)((__private const GLUE(ELEMENT_, SRC)*)line, 0));
      }
      for (; i + LANES <= end; i += LANES) GLUE(WRITE_, DST)(dst, d + i, GLUE(READ_, SRC)(src, s + i));
    }
#endif
    for (; i < end; ++i) GLUE(STORE_, DST)(dst, d + i * dst_step, LOADED(src, s + i * src_step));
  }
#endif
}
