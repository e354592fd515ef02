// kernels/fft/item.cl: Fourier transforms of lines of N numbers, LANES lines in a vector. Item kernel.
//
// A work-item copies no line: the first step loads from global memory and the last one stores there. Between steps the lines are
// in local memory, two copies of [N][re or im][LANES].
//
//   LINES_IN 1    a line is contiguous: pairs of 8 lines x 8 numbers are transposed on their way to local memory
//   LINES_OUT 1   the same for results
//   SPLIT 1       one line in all lanes: lane l has the numbers l, l + LANES, ... A last step across the lanes makes one transform
//                 of the LANES transforms, so nothing else has to be transposed. N is a multiple of LANES * LANES.
//
// Inputs (offsets and strides in elements of REAL):
//   x[o][k][p][q] at o*x_o + k*x_n + p*x_p + q*x_q, 0 <= p < P, 0 <= q < Q. INPUT 0: real parts in re, imaginary parts in im.
//   INPUT 1: pairs in re. INPUT 2: real numbers in re. A vector of lanes has neighbours along p and q (COLUMNS 1) or any lines.
// Global size: (ceil(blocks / blocks_per_item), 1, 1), local size (1, 1, 1).
// Epilogue macros: STORE(acc, o, e), STOREV(acc, o, e) with VW = 16; e = ((k * P + p) * Q + q) * 2, and 1 more for imaginary parts.
// Macros of a launch: N and LANES (see above), STEPS (radix, length of the transforms before the step, which copy it
//   reads), ROOTS (for each step, t < NS and 0 < q < radix: w(NS * radix, q * t)), COLUMNS, STEP_IN (COLUMNS 1: the
//   stride between lanes; 0: lanes have strides of their own), LINES_IN, LINES_OUT and SPLIT (see above), COPIES (in
//   local memory), RESULT (the copy with the results of the last step, for LINES_OUT and SPLIT).
#ifndef SPACE
#define SPACE __local  // __private if the copies do not fit into local memory
#endif

#if SPLIT
#define M (N / LANES)  // numbers in a lane
#else
#define M N
#endif
#define ROW (2 * LANES)
#define V16 OCL_CAT(REAL, 16)
#define V8 OCL_CAT(REAL, 8)

static __constant REAL roots[] = {ROOTS};
#if SPLIT
static __constant REAL turns[] = {TURNS};  // [N / LANES / LANES][LANES][cos, sin][LANES]: w(N, l * k)
#endif

// The lines of a block. In memory, lane l begins at `from` + (COLUMNS ? l * STEP_IN : lane[l]). Lanes below `skipped` belong to
// the block before, lanes from `count` on repeat the last line.
typedef struct {
  long from, next, lane[LANES];
  int o, inner, each, skipped, count, line;
#if ROOT
  int p[LANES];
#endif
} Block;

#define INTERLEAVED(a, b)                                                                                       \
  (V16)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, (a).s4, (b).s4, (a).s5, (b).s5, (a).s6, \
        (b).s6, (a).s7, (b).s7)
#if LANES == 8
#define LOW(a, b) (V)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3)
#define HIGH(a, b) (V)((a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
#else
#define LOW(a, b) INTERLEAVED((a).lo, (b).lo)
#define HIGH(a, b) INTERLEAVED((a).hi, (b).hi)
#endif

// Transposes LANES vectors: rounds of interleaving row i and row i + LANES / 2.
ALWAYS_INLINE void transpose(V* rows) {
  V next[LANES];
  OCL_UNROLL
  for (int round = 1; round < LANES; round *= 2) {
    OCL_UNROLL
    for (int i = 0; i < LANES / 2; ++i) {
      next[2 * i] = LOW(rows[i], rows[i + LANES / 2]);
      next[2 * i + 1] = HIGH(rows[i], rows[i + LANES / 2]);
    }
    OCL_UNROLL
    for (int i = 0; i < LANES; ++i) rows[i] = next[i];
  }
}

#if LINES_IN || LINES_OUT  // REAL is float
#define LOW_PAIRS(a, b) (ulong8)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3)
#define HIGH_PAIRS(a, b) (ulong8)((a).s4, (b).s4, (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
ALWAYS_INLINE void transpose_pairs(ulong8* rows) {
  ulong8 next[8];
  OCL_UNROLL
  for (int round = 0; round < 3; ++round) {
    OCL_UNROLL
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = LOW_PAIRS(rows[i], rows[i + 4]);
      next[2 * i + 1] = HIGH_PAIRS(rows[i], rows[i + 4]);
    }
    OCL_UNROLL
    for (int i = 0; i < 8; ++i) rows[i] = next[i];
  }
}
#endif

// Loads number k of all lanes.
ALWAYS_INLINE void load_lanes(__global const REAL* re, __global const REAL* im, const Block* block, const int k, V* a,
                              V* b) {
  const long at = block->from + k * block->next;
  V x, y = (V)(R_(0.0));
#if COLUMNS && STEP_IN == 2 && INPUT == 1
#if LANES == 8
  const V16 pairs = vload16(0, re + at);
  x = pairs.even, y = pairs.odd;
#else
  const V16 low = vload16(0, re + at), high = vload16(0, re + at + 16);
  x = (V)(low.even, high.even), y = (V)(low.odd, high.odd);
#endif
#elif COLUMNS && STEP_IN == 1
  x = OCL_CAT(vload, LANES)(0, re + at);
  if (INPUT == 0) y = OCL_CAT(vload, LANES)(0, im + at);
#else
  REAL parts[ROW];
  OCL_UNROLL
  for (int l = 0; l < LANES; ++l) {
    const long from = at + (COLUMNS && STEP_IN ? l * STEP_IN : block->lane[l]);
    parts[l] = re[from];
    if (INPUT == 0) parts[LANES + l] = im[from];
    if (INPUT == 1) parts[LANES + l] = re[from + 1];
  }
  x = OCL_CAT(vload, LANES)(0, parts);
  if (INPUT < 2) y = OCL_CAT(vload, LANES)(1, parts);
#endif
  *a = INVERSE ? y : x;
  *b = INVERSE ? x : y;
}

// Stores the pairs of LANES neighbouring elements from e on.
ALWAYS_INLINE void store_pairs(const V re, const V im, const int o, const int e EPILOGUE_FUNCTION_PARAMS) {
  const V x = INVERSE ? im : re, y = INVERSE ? re : im;
#if LANES == 8
  STOREV(INTERLEAVED(x, y), o, e);
#else
  STOREV(INTERLEAVED(x.lo, y.lo), o, e);
  STOREV(INTERLEAVED(x.hi, y.hi), o, e + 16);
#endif
}

// Stores result k of the lanes of this block, one by one.
ALWAYS_INLINE void store_each(const V re, const V im, const Block* block, const int k EPILOGUE_FUNCTION_PARAMS) {
  REAL x[LANES], y[LANES];
  OCL_CAT(vstore, LANES)(INVERSE ? im : re, 0, x);
  OCL_CAT(vstore, LANES)(INVERSE ? re : im, 0, y);
  for (int l = block->skipped; l < block->count; ++l) {
    const int line = block->line + l, o = COLUMNS ? block->o : line / block->each;
    const int e = (k * block->each + (COLUMNS ? block->inner + l : line % block->each)) * 2;
    STORE(x[l], o, e);
    STORE(y[l], o, e + 1);
  }
}

// Stores result k of all lanes.
ALWAYS_INLINE void store_lanes(V re, V im, const Block* block, const int k EPILOGUE_FUNCTION_PARAMS) {
#if ROOT
  V c, s;
  unit_root(OCL_CAT(vload, LANES)(0, block->p) * k, ROOT, &c, &s);
  turn(&re, &im, c, s);
#endif
  re *= SCALE;
  im *= SCALE;
  if (COLUMNS && block->skipped == 0)
    store_pairs(re, im, block->o, (k * block->each + block->inner) * 2 EPILOGUE_PASS);
  else
    store_each(re, im, block, k EPILOGUE_PASS);
}

// One step of all lines of the block: see butterfly.cl. The roots are those of this step.
ALWAYS_INLINE void step(const int R, const int NS, __constant const REAL* w, SPACE const REAL* from, SPACE REAL* to,
                        __global const REAL* x_re, __global const REAL* x_im,
                        const Block* block EPILOGUE_FUNCTION_PARAMS) {
  const int loads = NS == 1 && !LINES_IN, stores = NS * R == M && !LINES_OUT && !SPLIT;
  for (int b = 0; b < M / (NS * R); ++b)
    for (int t = 0; t < NS; ++t) {
      V re[LARGEST_RADIX], im[LARGEST_RADIX];
      OCL_UNROLL
      for (int q = 0; q < R; ++q) {
        const int k = b * NS + t + q * (M / R);
        if (loads) {
          load_lanes(x_re, x_im, block, k, re + q, im + q);
        } else {
          re[q] = *(SPACE const V*)(from + k * ROW);
          im[q] = *(SPACE const V*)(from + k * ROW + LANES);
        }
        if (NS > 1 && q > 0) {
          __constant const REAL* root = w + (t * (R - 1) + q - 1) * 2;
          turn(re + q, im + q, (V)(root[0]), (V)(root[1]));
        }
      }
      transform(re, im, R);
      OCL_UNROLL
      for (int q = 0; q < R; ++q) {
        const int k = (b * R + q) * NS + t;
        if (stores) {
          store_lanes(re[q], im[q], block, k EPILOGUE_PASS);
        } else {
          *(SPACE V*)(to + k * ROW) = re[q];
          *(SPACE V*)(to + k * ROW + LANES) = im[q];
        }
      }
    }
}

#if LINES_IN
// Copies the lines to local memory, transposed.
ALWAYS_INLINE void load_lines(__global const REAL* re, const Block* block, SPACE REAL* to) {
  for (int k = 0; k + 8 <= N; k += 8)
    for (int l = 0; l < LANES; l += 8) {
      ulong8 rows[8];
      OCL_UNROLL
      for (int i = 0; i < 8; ++i)
        rows[i] = as_ulong8(
            vload16(0, re + block->from + (COLUMNS && STEP_IN ? (l + i) * (long)STEP_IN : block->lane[l + i]) + k * 2));
      transpose_pairs(rows);
      OCL_UNROLL
      for (int i = 0; i < 8; ++i) {
        const float16 pairs = as_float16(rows[i]);
        *(SPACE V8*)(to + (k + i) * ROW + l) = INVERSE ? pairs.odd : pairs.even;
        *(SPACE V8*)(to + (k + i) * ROW + LANES + l) = INVERSE ? pairs.even : pairs.odd;
      }
    }
  for (int k = N / 8 * 8; k < N; ++k) {
    V a, b;
    load_lanes(re, re, block, k, &a, &b);
    *(SPACE V*)(to + k * ROW) = a;
    *(SPACE V*)(to + k * ROW + LANES) = b;
  }
}
#endif

#if LINES_OUT
// Stores the lines from local memory, transposed.
ALWAYS_INLINE void store_lines(SPACE const REAL* from, const Block* block EPILOGUE_FUNCTION_PARAMS) {
  for (int k = 0; k + 8 <= N; k += 8)
    for (int l = 0; l < LANES; l += 8) {
      ulong8 rows[8];
      OCL_UNROLL
      for (int i = 0; i < 8; ++i) {
        const V8 a = *(SPACE const V8*)(from + (k + i) * ROW + l) * SCALE;
        const V8 b = *(SPACE const V8*)(from + (k + i) * ROW + LANES + l) * SCALE;
        rows[i] = as_ulong8(INVERSE ? INTERLEAVED(b, a) : INTERLEAVED(a, b));
      }
      transpose_pairs(rows);
      OCL_UNROLL
      for (int i = 0; i < 8; ++i)
        if (l + i < block->count) STOREV(as_float16(rows[i]), block->line + l + i, k * 2);
    }
  for (int k = N / 8 * 8; k < N; ++k)
    store_lanes(*(SPACE const V*)(from + k * ROW), *(SPACE const V*)(from + k * ROW + LANES), block, k EPILOGUE_PASS);
}
#endif

#if SPLIT
// The last step of a line that is split among the lanes: w(N, l * k) times result k of lane l, then transforms across the lanes.
ALWAYS_INLINE void join_lanes(SPACE const REAL* from, const Block* block EPILOGUE_FUNCTION_PARAMS) {
  for (int k = 0; k < M; k += LANES) {
    V re[LANES], im[LANES];
    OCL_UNROLL
    for (int l = 0; l < LANES; ++l) {
      re[l] = *(SPACE const V*)(from + (k + l) * ROW);
      im[l] = *(SPACE const V*)(from + (k + l) * ROW + LANES);
    }
    transpose(re);
    transpose(im);
    OCL_UNROLL
    for (int l = 1; l < LANES; ++l) {
      __constant const REAL* root = turns + (k + l) * ROW;
      turn(re + l, im + l, OCL_CAT(vload, LANES)(0, root), OCL_CAT(vload, LANES)(1, root));
    }
    transform(re, im, LANES);
    OCL_UNROLL
    for (int l = 0; l < LANES; ++l) store_pairs(re[l] * SCALE, im[l] * SCALE, block->o, (k + l * M) * 2 EPILOGUE_PASS);
  }
}
#endif

// Describes block number i. (Oclgrind cannot run inlined functions that return a struct.)
ALWAYS_INLINE void find_block(Block* block, const int i, const int O, const int P, const int Q, const long x_o,
                              const long x_n, const long x_p, const long x_q) {
  block->each = P * Q;
  block->next = x_n;
  block->skipped = 0;
  block->count = LANES;
  block->inner = block->line = 0;
#if SPLIT
  block->o = i;
  block->from = i * x_o;
  block->next = x_n * LANES;
#elif COLUMNS  // The last block ends with the last column, and repeats columns of the block before.
  const int blocks = (block->each + LANES - 1) / LANES, inner = i % blocks * LANES;
  block->o = i / blocks;
  block->inner = min(inner, block->each - LANES);
  block->skipped = inner - block->inner;
  block->from = block->o * x_o + block->inner / Q * x_p + block->inner % Q * x_q;
#else
  block->o = 0;
  block->from = 0;
  block->line = i * LANES;
  block->count = min(LANES, O * block->each - block->line);
#endif
#if !SPLIT && !(COLUMNS && STEP_IN)
  for (int l = 0; l < LANES; ++l) {
    const int line = COLUMNS ? block->inner + l : min(block->line + l, O * block->each - 1);
    block->lane[l] = (COLUMNS ? -block->from + block->o * x_o : line / block->each * x_o) +
                     line % block->each / Q * x_p + line % Q * x_q;
  }
#endif
#if ROOT
  for (int l = 0; l < LANES; ++l) block->p[l] = (COLUMNS ? block->inner + l : (block->line + l) % block->each) / Q;
#endif
}

__kernel ONE_ITEM void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if INPUT != 0
  __global const REAL* im = re;
  const long im_offset = re_offset;
#endif
  SPACE REAL numbers[COPIES * M * ROW] __attribute__((aligned(64)));
  const int blocks = SPLIT ? O : COLUMNS ? O * ((P * Q + LANES - 1) / LANES) : (O * P * Q + LANES - 1) / LANES;
  const int first = (int)get_group_id(0) * blocks_per_item, end = min(first + blocks_per_item, blocks);
  for (int i = first; i < end; ++i) {
    Block block;
    find_block(&block, i, O, P, Q, x_o, x_n, x_p, x_q);
#if LINES_IN
    load_lines(re + re_offset, &block, numbers);
#endif
#define STEP(R, NS, FROM, AT)                                                                           \
  step(R, NS, roots + AT, numbers + FROM * (M * ROW), numbers + (1 - FROM) * (M * ROW), re + re_offset, \
       im + im_offset, &block EPILOGUE_PASS);
    STEPS(STEP)
#if SPLIT
    join_lanes(numbers + RESULT * (M * ROW), &block EPILOGUE_PASS);
#elif LINES_OUT
    store_lines(numbers + RESULT * (M * ROW), &block EPILOGUE_PASS);
#endif
  }
}
