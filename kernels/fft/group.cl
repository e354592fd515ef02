// kernels/fft/group.cl: Fourier transforms of LINES lines of N numbers. Group kernel: one work-group = LINES lines.
//
// A work-item loads the numbers of its butterflies into registers, transforms them, and stores them in local memory for the
// next step. The first step loads from global memory; the last one stores the results. One copy of the lines in local memory is
// enough: all work-items load before one of them stores.
//
// Inputs (offsets and strides in elements of REAL):
//   x[o][k][p][q] at o*x_o + k*x_n + p*x_p + q*x_q, 0 <= p < P, 0 <= q < Q. INPUT 0: real parts in re, imaginary parts in im.
//   INPUT 1: pairs in re. INPUT 2: real numbers in re.
// Arguments: re, re_offset, im, im_offset (INPUT 0), int O, P, Q, long x_o, x_n, x_p, x_q, EPILOGUE_PARAMS.
//   Global size: (ceil(O * P * Q / LINES) * ITEMS, 1, 1), local size (ITEMS, 1, 1).
// Epilogue macros: STOREV(two numbers, o, ((k * P + p) * Q + q) * 2).
// Macros of a launch: N (numbers of a line), STEPS (radix, length of the transforms before the step), LINES (of a
//   work-group), ITEMS (work-items of a group), POINTS (numbers of a work-item: the largest over the steps), COLUMNS_IN
//   (1: neighbouring work-items load from neighbouring lines, 0: along a line), COLUMNS_OUT (the same for stores),
//   PADDED (1: a gap after 16 numbers of a line, so that a step with a stride of 16 uses all banks of local memory).
#ifndef EPILOGUE_PARAMS
#define EPILOGUE_PARAMS , __global REAL *out, const long out_offset
#define EPILOGUE_FUNCTION_PARAMS EPILOGUE_PARAMS
#define EPILOGUE_PASS , out, out_offset
#define STOREV(acc, o, e) vstore2(acc, 0, out + out_offset + (o) * (long)(N * 2) * at.P * at.Q + (e))
#endif

// The place in local memory of number k of line `line`.
#define LINE_SIZE (N + (PADDED ? N / 16 : 0))
#define PLACE(line, k) (COLUMNS_OUT ? (k) * LINES + (line) : (line) * LINE_SIZE + (k) + (PADDED ? (k) / 16 : 0))
#define NUMBERS (COLUMNS_OUT ? N * LINES : LINE_SIZE * LINES)

ALWAYS_INLINE void load_number(__global const REAL* re, __global const REAL* im, REAL* a, REAL* b) {
  const REAL x = *re;
  const REAL y = INPUT == 0 ? *im : INPUT == 1 ? re[1] : R_(0.0);
  *a = INVERSE ? y : x;
  *b = INVERSE ? x : y;
}

// Returns line and butterfly of the work-item's butterfly number i, along lines or across them.
ALWAYS_INLINE int2 butterfly_of(const int i, const int count, const int across) {
  return across ? (int2)(i % LINES, i / LINES) : (int2)(i / count, i % count);
}

// Puts the numbers of the butterfly (b, t) into re and im, and transforms them.
ALWAYS_INLINE void butterfly(REAL* re, REAL* im, const int R, const int NS, const int t) {
  if (NS > 1) {
    OCL_UNROLL
    for (int q = 1; q < R; ++q) {
      REAL c, s;
      unit_root(q * t, NS * R, &c, &s);
      turn(re + q, im + q, c, s);
    }
  }
  transform(re, im, R);
}

// Where the numbers are in memory, and which lines the work-group has: line0 and the next of `lines` in all.
typedef struct {
  long o, n, p, q;
  int P, Q, lane, line0, lines;
} Lines;

// Loads the numbers of butterfly `at` in the first step.
ALWAYS_INLINE void load_butterfly(__global const REAL* re, __global const REAL* im, const Lines at, const int line,
                                  const int first, const int R, REAL* a, REAL* b) {
  const int whole = min(at.line0 + line, at.lines - 1), each = at.P * at.Q;
  const long from = whole / each * at.o + whole % each / at.Q * at.p + whole % at.Q * at.q;
  OCL_UNROLL
  for (int q = 0; q < R; ++q) {
    const long k = from + (first + q * (N / R)) * at.n;
    load_number(re + k, im + k, a + q, b + q);
  }
}

// Stores a result of the last step.
ALWAYS_INLINE void store_number(REAL x, REAL y, const Lines at, const int line, const int k EPILOGUE_FUNCTION_PARAMS) {
  const int each = at.P * at.Q, inner = (at.line0 + line) % each;
#if ROOT
  REAL c, s;
  unit_root(k * (inner / at.Q), ROOT, &c, &s);
  turn(&x, &y, c, s);
#endif
  x *= SCALE;
  y *= SCALE;
  STOREV((INVERSE ? (OCL_CAT(REAL, 2))(y, x) : (OCL_CAT(REAL, 2))(x, y)), (at.line0 + line) / each,
         (k * each + inner) * 2);
}

ALWAYS_INLINE void step(const int R, const int NS, __global const REAL* re, __global const REAL* im, const Lines at,
                        __local REAL* numbers EPILOGUE_FUNCTION_PARAMS) {
  const int count = N / R, all = LINES * count, each = (all + ITEMS - 1) / ITEMS;
  const int first = NS == 1, last = NS * R == N;
  REAL a[POINTS], b[POINTS];
  OCL_UNROLL
  for (int c = 0; c < each; ++c) {
    const int i = at.lane + c * ITEMS;
    if (all % ITEMS != 0 && i >= all) continue;
    const int2 own = butterfly_of(i, count, first ? COLUMNS_IN : COLUMNS_OUT);
    if (first) load_butterfly(re, im, at, own.x, own.y, R, a + c * R, b + c * R);
    OCL_UNROLL
    for (int q = 0; !first && q < R; ++q) {
      a[c * R + q] = numbers[PLACE(own.x, own.y + q * count)];
      b[c * R + q] = numbers[NUMBERS + PLACE(own.x, own.y + q * count)];
    }
    butterfly(a + c * R, b + c * R, R, NS, own.y % NS);
  }
  if (!first && !last) barrier(CLK_LOCAL_MEM_FENCE);
  OCL_UNROLL
  for (int c = 0; c < each; ++c) {
    const int i = at.lane + c * ITEMS;
    if (all % ITEMS != 0 && i >= all) continue;
    const int2 own = butterfly_of(i, count, first ? COLUMNS_IN : COLUMNS_OUT);
    if (last && at.line0 + own.x >= at.lines) continue;
    const int k = own.y / NS * (NS * R) + own.y % NS;
    OCL_UNROLL
    for (int q = 0; q < R; ++q) {
      if (last) {
        store_number(a[c * R + q], b[c * R + q], at, own.x, k + q * NS EPILOGUE_PASS);
      } else {
        numbers[PLACE(own.x, k + q * NS)] = a[c * R + q];
        numbers[NUMBERS + PLACE(own.x, k + q * NS)] = b[c * R + q];
      }
    }
  }
  if (!last) barrier(CLK_LOCAL_MEM_FENCE);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if INPUT != 0
  __global const REAL* im = re;
  const long im_offset = re_offset;
#endif
  __local REAL numbers[2 * NUMBERS];
  const Lines at = {x_o, x_n, x_p, x_q, P, Q, (int)get_local_id(0), (int)get_group_id(0) * LINES, O * P * Q};
#define STEP(R, NS) step(R, NS, re + re_offset, im + im_offset, at, numbers EPILOGUE_PASS);
  STEPS(STEP)
}
