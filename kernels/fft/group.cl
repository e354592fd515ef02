// kernels/fft/group.cl: Fourier transforms of LINES lines. Group kernel: one work-group = LINES lines; with CHIRP, several such blocks.
//
// A work-item loads the numbers of its butterflies into registers, transforms them, and stores them in local memory for the
// next step. The first step loads from global memory; the last one stores the results. One copy of the lines in local memory is
// enough: all work-items load before one of them stores.
//
//   FORM 1    a line of N pairs is a real line of 2 N numbers. The last step leaves the lines in local memory, and pairs of results
//             k and N - k of the real line are made of numbers k and N - k (kFromReal of csrc/ir/graph.h).
//   FORM 2    the same backwards: N + 1 numbers are loaded in pairs, the results are N pairs of real numbers (kToReal).
//   CHIRP n   lines of n numbers, with any prime factors. With w = exp(-pi i / n), j k = (j^2 + k^2 - (k - j)^2) / 2 makes the
//             transform a convolution of x[j] w^(j^2) with w^-(k - j)^2, by transforms of N >= 2 n - 1 numbers (Bluestein). Each
//             work-group first transforms the second factor. A work-item keeps the results in registers, because it multiplies
//             just these numbers of each line.
//
// Inputs (offsets and strides in elements of REAL):
//   x[o][k][p][q] at o*x_o + k*x_n + p*x_p + q*x_q, 0 <= p < P, 0 <= q < Q. INPUT 0: real parts in re, imaginary parts in im.
//   INPUT 1: pairs in re. INPUT 2: real numbers in re.
// Global size: (ceil(O * P * Q / LINES) * ITEMS, 1, 1), less with CHIRP; local size (ITEMS, 1, 1).
// Epilogue macros: STOREV(two numbers, o, ((k * P + p) * Q + q) * 2).
// Macros of a launch: N (numbers of a line), STEPS (radix, length of the transforms before the step), LINES (of a
//   work-group), ITEMS (work-items of a group), POINTS (numbers of a work-item: the largest over the steps), ROWS (1: P and Q
//   are 1), EVEN (1: pairs have even strides), COLUMNS_IN (1: neighbouring work-items load from neighbouring lines, 0: along a
//   line), COLUMNS_OUT (the same for stores), PADDED (1: a gap after 16 numbers of a line, so that a step with a stride of 16
//   uses all banks of local memory).
#ifndef FORM
#define FORM 0
#endif
#ifndef CHIRP
#define CHIRP 0
#endif
#define REAL2 OCL_CAT(REAL, 2)

// The place in local memory of number k of line `line`.
#define LINE_SIZE (N + (PADDED ? N / 16 : 0))
#define PLACE(line, k) (COLUMNS_OUT ? (k) * LINES + (line) : (line) * LINE_SIZE + (k) + (PADDED ? (k) >> 4 : 0))
#define NUMBERS (COLUMNS_OUT ? N * LINES : LINE_SIZE * LINES)

// The transform is a forward one. Its numbers are exchanged for the inverse: the real part is in the place of the imaginary one.
#define EXCHANGED (FORM == 2 || (FORM == 0 && INVERSE))

// Where the first step of a pass has its numbers from, and where the last one puts them.
#define IN_LOCAL 0
#define IN_MEMORY 1
#define RESPONSE 2  // From the second factor of CHIRP; to registers.
#define PRODUCT 3  // To local memory, multiplied by the numbers in these registers.

// Divisions are unsigned: by a power of two, they are shifts then.

// Where the numbers are in memory, and which lines the work-group has: line0 and the next of `lines` in all. even: a pair of numbers
// is at an aligned address.
typedef struct {
  long o, n, p, q;
  int P, Q, lane, line0, lines, even;
} Lines;

ALWAYS_INLINE REAL2 load_pair(__global const REAL* re, __global const REAL* im, const int even) {
  if (INPUT == 1 && even) return *(__global const REAL2*)re;
  return (REAL2)(*re, INPUT == 0 ? *im : INPUT == 1 ? re[1] : R_(0.0));
}

ALWAYS_INLINE long start_of_line(const Lines at, const int line) {
  const uint whole = min(at.line0 + line, at.lines - 1), each = at.P * at.Q, Q = at.Q;
  return ROWS ? whole * at.o : whole / each * at.o + whole % each / Q * at.p + whole % Q * at.q;
}

// Stores number k of a line.
ALWAYS_INLINE void store_pair(const REAL2 pair, const Lines at, const int line, const int k EPILOGUE_FUNCTION_PARAMS) {
  const uint whole = at.line0 + line, each = ROWS ? 1 : at.P * at.Q;
  STOREV(pair, ROWS ? whole : whole / each, ROWS ? k * 2 : (k * each + whole % each) * 2);
}

#if CHIRP
// Returns cos and sin of pi k^2 / n.
ALWAYS_INLINE void chirp(const int k, REAL* c, REAL* s) {
  unit_root(k * k % (2 * CHIRP), 2 * CHIRP, c, s);
}
#endif

// Returns line and butterfly of the work-item's butterfly number i, along lines or across them.
ALWAYS_INLINE int2 butterfly_of(const uint i, const uint count, const int across) {
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

// Loads the numbers first + q * N / R of a line, the first ones of a pass.
ALWAYS_INLINE void load_butterfly(__global const REAL* re, __global const REAL* im, const Lines at, const int line,
                                  const int first, const int R, const int from, REAL* a, REAL* b) {
  const long start = start_of_line(at, line);
  OCL_UNROLL
  for (int q = 0; q < R; ++q) {
    const int k = first + q * (N / R);
#if CHIRP
    REAL c, s;
    if (from == RESPONSE) {
      const int distance = min(k, N - k), used = distance < CHIRP;
      chirp(used ? distance : 0, &c, &s);
      a[q] = used ? c : R_(0.0), b[q] = used ? s : R_(0.0);
      continue;
    }
    if (k >= CHIRP) {
      a[q] = b[q] = R_(0.0);
      continue;
    }
#endif
    const long place = start + k * at.n;
    const REAL2 pair = load_pair(re + place, im + place, at.even);
    a[q] = EXCHANGED ? pair.y : pair.x;
    b[q] = EXCHANGED ? pair.x : pair.y;
#if CHIRP
    chirp(k, &c, &s);
    turn(a + q, b + q, c, s);
#endif
  }
}

// Stores a result of the last step.
ALWAYS_INLINE void store_number(REAL x, REAL y, const Lines at, const int line, const int k EPILOGUE_FUNCTION_PARAMS) {
#if CHIRP || ROOT
  REAL c, s;
#endif
#if CHIRP
  if (k >= CHIRP) return;
  const REAL imaginary = x;  // The second transform was a backward one.
  x = y, y = imaginary;
  chirp(k, &c, &s);
  turn(&x, &y, c, s);
#endif
#if ROOT
  const uint p = (uint)(at.line0 + line) % (uint)(at.P * at.Q) / (uint)at.Q;
  unit_root(k * p, ROOT, &c, &s);
  turn(&x, &y, c, s);
#endif
  const REAL scale = CHIRP ? SCALE / N : SCALE;
  x *= scale;
  y *= scale;
  store_pair(EXCHANGED ? (REAL2)(y, x) : (REAL2)(x, y), at, line, k EPILOGUE_PASS);
}

// One step. from, to: of the pass. kept: the registers of CHIRP, real parts before imaginary parts.
ALWAYS_INLINE void step(const int R, const int NS, const int from, const int to, __global const REAL* re,
                        __global const REAL* im, const Lines at, __local REAL* numbers,
                        REAL* kept EPILOGUE_FUNCTION_PARAMS) {
  const int count = N / R, all = LINES * count, each = (all + ITEMS - 1) / ITEMS;
  const int loads = NS == 1 && from != IN_LOCAL, last = NS * R == N, stores = last && to == IN_MEMORY;
  const int across = NS == 1 && from == IN_MEMORY ? COLUMNS_IN : COLUMNS_OUT;
  REAL a[POINTS], b[POINTS];
  OCL_UNROLL
  for (int c = 0; c < each; ++c) {
    const int i = at.lane + c * ITEMS;
    if (all % ITEMS != 0 && i >= all) continue;
    const int2 own = butterfly_of(i, count, across);
    const uint t = (uint)own.y % NS;
    if (loads) {
      load_butterfly(re, im, at, own.x, own.y, R, from, a + c * R, b + c * R);
    } else {
      OCL_UNROLL
      for (int q = 0; q < R; ++q) {
        a[c * R + q] = numbers[PLACE(own.x, own.y + q * count)];
        b[c * R + q] = numbers[NUMBERS + PLACE(own.x, own.y + q * count)];
      }
    }
    butterfly(a + c * R, b + c * R, R, NS, t);
  }
#if CHIRP
  if (last && to == RESPONSE) {
    OCL_UNROLL
    for (int c = 0; c < POINTS; ++c) kept[c] = a[c], kept[POINTS + c] = b[c];
    return;
  }
  if (last && to == PRODUCT) {  // Exchanged, for the backward transform.
    OCL_UNROLL
    for (int c = 0; c < POINTS; ++c) {
      const REAL x = a[c], y = b[c];
      b[c] = fma(-y, kept[POINTS + c], x * kept[c]);
      a[c] = fma(x, kept[POINTS + c], y * kept[c]);
    }
  }
#endif
  if (!loads && !stores) barrier(CLK_LOCAL_MEM_FENCE);
  OCL_UNROLL
  for (int c = 0; c < each; ++c) {
    const int i = at.lane + c * ITEMS;
    if (all % ITEMS != 0 && i >= all) continue;
    const int2 own = butterfly_of(i, count, across);
    if (stores && at.line0 + own.x >= at.lines) continue;
    const int k = own.y + (uint)own.y / NS * (NS * (R - 1));
    OCL_UNROLL
    for (int q = 0; q < R; ++q) {
      if (stores) {
        store_number(a[c * R + q], b[c * R + q], at, own.x, k + q * NS EPILOGUE_PASS);
      } else {
        numbers[PLACE(own.x, k + q * NS)] = a[c * R + q];
        numbers[NUMBERS + PLACE(own.x, k + q * NS)] = b[c * R + q];
      }
    }
  }
  if (!stores) barrier(CLK_LOCAL_MEM_FENCE);
}

#if FORM == 1
// Stores results k and N - k, made of numbers k and N - k of a line in local memory: E + w^k O and conj(E - w^k O), where
// w = exp(-pi i / N), E and O are the transforms of even and of odd numbers, 2 E = Z[k] + conj Z[-k], 2 O = -i (Z[k] - conj Z[-k]).
ALWAYS_INLINE void store_real(const Lines at, __local const REAL* numbers EPILOGUE_FUNCTION_PARAMS) {
  const uint pairs = N / 2 + 1;
  for (uint i = at.lane; i < LINES * pairs; i += ITEMS) {
    const int line = i / pairs, k = i % pairs, place = PLACE(line, k), other = PLACE(line, k == 0 ? 0 : N - k);
    if (at.line0 + line >= at.lines) return;
    const REAL scale = SCALE * R_(0.5), a = numbers[place] * scale, b = numbers[NUMBERS + place] * scale;
    const REAL u = numbers[other] * scale, v = numbers[NUMBERS + other] * scale;
    REAL c, s, x = b + v, y = u - a;
    unit_root(k, 2 * N, &c, &s);
    turn(&x, &y, c, s);
    const REAL sign = INVERSE ? R_(-1.0) : R_(1.0), im = k == 0 ? R_(0.0) : (y + (b - v)) * sign;
    store_pair((REAL2)(x + (a + u), im), at, line, k EPILOGUE_PASS);
    if (2 * k != N)
      store_pair((REAL2)((a + u) - x, k == 0 ? R_(0.0) : (y - (b - v)) * sign), at, line, N - k EPILOGUE_PASS);
  }
}
#elif FORM == 2
// Loads numbers k and N - k of each line, and puts Z[k] and Z[N - k] into local memory, exchanged: undoes store_real.
ALWAYS_INLINE void load_real(__global const REAL* re, __global const REAL* im, const Lines at, __local REAL* numbers) {
  const uint pairs = N / 2 + 1;
  for (uint i = at.lane; i < LINES * pairs; i += ITEMS) {
    const int line = i / pairs, k = i % pairs;
    const long start = start_of_line(at, line), one = start + k * at.n, other = start + (N - k) * at.n;
    const REAL sign = k == 0 ? R_(0.0) : INVERSE ? R_(1.0) : R_(-1.0);
    const REAL2 p = load_pair(re + one, im + one, at.even), r = load_pair(re + other, im + other, at.even);
    // A factor of 0 would make NaN of an infinite imaginary part that is not used.
    const REAL b = k == 0 ? R_(0.0) : p.y * sign, v = k == 0 ? R_(0.0) : r.y * sign;
    REAL c, s, x = p.x - r.x, y = b + v;
    unit_root(k, 2 * N, &c, &s);
    turn(&x, &y, c, -s);
    numbers[PLACE(line, k)] = (b - v) + x;
    numbers[NUMBERS + PLACE(line, k)] = (p.x + r.x) - y;
    if (k == 0) continue;
    numbers[PLACE(line, N - k)] = x - (b - v);
    numbers[NUMBERS + PLACE(line, N - k)] = (p.x + r.x) + y;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

__kernel
    __attribute__((reqd_work_group_size(ITEMS, 1, 1))) THREAD_SIZE void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if INPUT != 0
  __global const REAL* im = re;
  const long im_offset = re_offset;
#endif
  __local REAL numbers[2 * NUMBERS];
  const int lane = get_local_id(0), line0 = (int)get_group_id(0) * LINES, even = EVEN && re_offset % 2 == 0;
  Lines at = {x_o, x_n, x_p, x_q, P, Q, lane, line0, O * P * Q, even};
#define STEP(R, NS) step(R, NS, from, to, re + re_offset, im + im_offset, at, numbers, kept EPILOGUE_PASS);
#if CHIRP
  // One text of the steps serves all passes: of the second factor, then forward and backward for each block of lines.
  REAL kept[2 * POINTS];
  const int blocks = (at.lines + LINES - 1) / LINES,
            own = (blocks - 1 - (int)get_group_id(0)) / (int)get_num_groups(0) + 1;
  for (int pass = 0; pass <= 2 * own; ++pass) {
    const int back = pass > 0 && pass % 2 == 0;
    const int from = pass == 0 ? RESPONSE
                     : back    ? IN_LOCAL
                               : IN_MEMORY,
              to = pass == 0 ? RESPONSE
                   : back    ? IN_MEMORY
                             : PRODUCT;
    STEPS(STEP)
    barrier(CLK_LOCAL_MEM_FENCE);
    if (back) at.line0 += (int)get_num_groups(0) * LINES;
  }
#else
  REAL* const kept = 0;
  const int from = FORM == 2 ? IN_LOCAL : IN_MEMORY, to = FORM == 1 ? IN_LOCAL : IN_MEMORY;
#if FORM == 2
  load_real(re + re_offset, im + im_offset, at, numbers);
#endif
  STEPS(STEP)
#if FORM == 1
  store_real(at, numbers EPILOGUE_PASS);
#endif
#endif
}
