// kernels/base/sparse.cl: products of a sparse matrix in compressed rows (CSR) and dense matrices. The elements of row r are
// those from rows[r] to rows[r + 1]. A work-item adds them up in this order, so the same operands give the same bits.
//
//   KIND 0   out[r, c]    = sum of values[j] * dense[columns[j], c] over the elements j of row r
//   KIND 1   out[r, c]    = the largest of these products, or the smallest; places[r, c] = its j. Without elements: 0 and count
//   KIND 2   out[j]       = sum of dense[rows[j], c] * other[columns[j], c] over c;   here rows has the row of each element
//
// Offsets are in bytes. A work-item has WIDTH neighbouring columns. TYPE_bf16 needs bfloat16.cl before this file.
// Macros of a launch: NAME (of the kernel), KIND, INDEX (type of rows and columns), WIDTH (1, 4, 8 or 16; 1 for KIND 1),
//   IS_BETTER(x, best) (of KIND 1).

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)

// ELEMENT: a number in memory. NUMBER: what it is added up in.
#if defined(TYPE_f64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define ELEMENT double
#define NUMBER double
#elif defined(TYPE_f16)
#define ELEMENT half
#define NUMBER float
#define LOAD(p, i) vload_half(i, p)
#define LOADS(p, i) GLUE(vload_half, WIDTH)(0, (p) + (i))
#define STORE(p, i, v) vstore_half_rte(v, i, p)
#define STORES(p, i, v) GLUE(GLUE(vstore_half, WIDTH), _rte)(v, 0, (p) + (i))
#elif defined(TYPE_bf16)
#define ELEMENT ushort
#define NUMBER float
#define LOAD(p, i) as_float((uint)(p)[i] << 16)
#define LOADS(p, i) GLUE(as_float, WIDTH)(GLUE(convert_uint, WIDTH)(GLUE(vload, WIDTH)(0, (p) + (i))) << 16)
#define STORE(p, i, v) (p)[i] = bfloat16_bits(v)
#elif defined(TYPE_i32)
#define ELEMENT int
#define NUMBER uint
#define LOAD(p, i) (uint)(p)[i]
#define LOADS(p, i) GLUE(as_uint, WIDTH)(GLUE(vload, WIDTH)(0, (p) + (i)))
#define STORES(p, i, v) GLUE(vstore, WIDTH)(GLUE(as_int, WIDTH)(v), 0, (p) + (i))
#elif defined(TYPE_i64)
#define ELEMENT long
#define NUMBER ulong
#define LOAD(p, i) (ulong)(p)[i]
#define LOADS(p, i) GLUE(as_ulong, WIDTH)(GLUE(vload, WIDTH)(0, (p) + (i)))
#define STORES(p, i, v) GLUE(vstore, WIDTH)(GLUE(as_long, WIDTH)(v), 0, (p) + (i))
#else
#define ELEMENT float
#define NUMBER float
#endif
#ifndef LOAD
#define LOAD(p, i) (p)[i]
#endif
#ifndef LOADS
#define LOADS(p, i) GLUE(vload, WIDTH)(0, (p) + (i))
#endif
#ifndef STORE
#define STORE(p, i, v) (p)[i] = (ELEMENT)(v)
#endif
#ifndef STORES
#define STORES(p, i, v) GLUE(vstore, WIDTH)(v, 0, (p) + (i))
#endif

// A pointer to ELEMENT or INDEX `offset` bytes behind p.
#define AT(type, p, offset) ((__global type*)((__global char*)(p) + (offset)))
// An index may be wrong, because nothing checks those of a sparse tensor.
#define INSIDE(i, size) (ulong) clamp((long)(i), 0L, (long)(size) - 1)

#if KIND == 2
__kernel void NAME(__global INDEX* rows_, const ulong rows_offset, __global INDEX* columns_, const ulong columns_offset,
                   __global ELEMENT* dense_, const ulong dense_offset, __global ELEMENT* other_,
                   const ulong other_offset, __global ELEMENT* out_, const ulong out_offset, const ulong count,
                   const ulong height, const ulong other_height, const ulong width) {
  const ulong j = get_global_id(0);
  if (j >= count) return;
  const ulong r = INSIDE(AT(INDEX, rows_, rows_offset)[j], height),
              s = INSIDE(AT(INDEX, columns_, columns_offset)[j], other_height);
  __global ELEMENT *a = AT(ELEMENT, dense_, dense_offset) + r * width,
                   *b = AT(ELEMENT, other_, other_offset) + s * width;
  NUMBER sum = 0;
  ulong c = 0;
#if WIDTH > 1
  GLUE(NUMBER, WIDTH) sums = (GLUE(NUMBER, WIDTH))(0);
  for (; c + WIDTH <= width; c += WIDTH) sums += LOADS(a, c) * LOADS(b, c);
  for (int lane = 0; lane < WIDTH; ++lane) sum += ((NUMBER*)&sums)[lane];
#endif
  for (; c < width; ++c) sum += LOAD(a, c) * LOAD(b, c);
  STORE(AT(ELEMENT, out_, out_offset), j, sum);
}
#else
__kernel void NAME(__global INDEX* rows_, const ulong rows_offset, __global INDEX* columns_, const ulong columns_offset,
                   __global ELEMENT* values_, const ulong values_offset, __global ELEMENT* dense_,
                   const ulong dense_offset, __global ELEMENT* out_, const ulong out_offset,
#if KIND == 1
                   __global long* places_, const ulong places_offset,
#endif
                   const ulong count, const ulong height, const ulong dense_height, const ulong width) {
  const ulong first = (ulong)get_global_id(0) * WIDTH, r = get_global_id(1);
  if (r >= height || first >= width) return;
  __global INDEX *rows = AT(INDEX, rows_, rows_offset), *columns = AT(INDEX, columns_, columns_offset);
  __global ELEMENT *values = AT(ELEMENT, values_, values_offset), *dense = AT(ELEMENT, dense_, dense_offset);
  __global ELEMENT* out = AT(ELEMENT, out_, out_offset) + r * width;
  const long begin = max((long)rows[r], 0L), end = min((long)rows[r + 1], (long)count);
#if KIND == 1
  NUMBER best = 0;
  long place = (long)count;
  for (long j = begin; j < end; ++j) {
    const NUMBER x = LOAD(values, j) * LOAD(dense, INSIDE(columns[j], dense_height) * width + first);
    if (place == (long)count || IS_BETTER(x, best)) {
      best = x;
      place = j;
    }
  }
  STORE(out, first, best);
  AT(long, places_, places_offset)[r * width + first] = place;
#else
#if WIDTH > 1
  if (first + WIDTH <= width) {
    GLUE(NUMBER, WIDTH) sums = (GLUE(NUMBER, WIDTH))(0);
    for (long j = begin; j < end; ++j)
      sums += (GLUE(NUMBER, WIDTH))(LOAD(values, j)) * LOADS(dense, INSIDE(columns[j], dense_height) * width + first);
#ifdef TYPE_bf16
    for (int lane = 0; lane < WIDTH; ++lane) STORE(out, first + lane, ((float*)&sums)[lane]);
#else
    STORES(out, first, sums);
#endif
    return;
  }
#endif
  for (ulong c = first; c < min(first + WIDTH, width); ++c) {
    NUMBER sum = 0;
    for (long j = begin; j < end; ++j)
      sum += LOAD(values, j) * LOAD(dense, INSIDE(columns[j], dense_height) * width + c);
    STORE(out, c, sum);
  }
#endif
}
#endif
