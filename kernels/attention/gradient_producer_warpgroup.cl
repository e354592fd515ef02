// kernels/attention/gradient_producer_warpgroup.cl: parameters of attention/gradient_warpgroup.cl, and its producers,
// which stage the columns of each step. Comes after attention/shared_warpgroup.cl.
#ifndef OVERLAP
#define OVERLAP 0  // PASS 1, operands of 16 bits. 1: the products ds k of a step run while the next ds is computed
#endif
#define TILES (HALVES ? 2 : PASS + 2)  // stages of a step
#define STEPS_HELD (STAGES / TILES + 2)  // steps whose statistics are in use at once
#define STATISTICS(n) ((n) % STEPS_HELD * 2 * TILE_C)  // offset of step n's statistics, [lse, delta][TILE_C]

// The columns that a work-group walks over in a task: their operands and statistics for the first head, and the strides from head
// to head.
typedef struct {
  __global const OPERAND_T *b, *b2;
  long b_head, b_row, b2_head, b2_row;
  QueryStatistics statistics;
  long sums_head, delta_head;
  int begin, columns, steps;
  int heads;  // of queries that share this head of keys and values; 1 with PASS 1
} ColumnOperands;
#if PASS == 2
// Returns (lse, delta) of the query that this producer loads for a step; zeros if it loads none.
ALWAYS_INLINE float2 statistics_at(const ColumnOperands o, const Place at) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  if (p >= TILE_C || at.head >= o.heads) return (float2)(0.0f);
  const QueryStatistics of = {o.statistics.sums + at.head * o.sums_head, o.statistics.delta + at.head * o.delta_head,
                              o.statistics.which, o.columns};
  return load_statistics(of, o.begin + at.step * TILE_C + p);
}
// Stores the statistics of step n, which `loaded` holds, into local memory. Returns the statistics of the next step, so
// that their loads are in flight for a whole step.
ALWAYS_INLINE float2 put_statistics(__local float* statistics, const ColumnOperands o, const int n, const Place next,
                                    const float2 loaded) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  if (p < TILE_C) {
    statistics[STATISTICS(n) + p] = loaded.x;
    statistics[STATISTICS(n) + TILE_C + p] = loaded.y;
  }
  return statistics_at(o, next);
}
#endif
// Each version of produce stages the steps of a task. n: number of the steps taken before, over all tasks. Returns the
// number of those taken after it.
#if HALVES
ALWAYS_INLINE int produce(const Pipeline line, const ColumnOperands o, __local float* statistics, int n,
                          const int direct SEEN_PARAMS) {
  Place at = first_place(o.steps, o.heads SEEN_PASS);
#if PASS == 2
  float2 loaded = statistics_at(o, at);
#endif
  for (; at.head < o.heads; ++n) {
    const int c0 = o.begin + at.step * TILE_C, left = o.columns - c0;
    const Place next = next_place(at, o.steps SEEN_PASS);
    __local OPERAND_T* to = producer_acquire(line, 2 * n);
#if PASS == 2
    loaded = put_statistics(statistics, o, n, next, loaded);
#endif
    stage_rows(to, o.b2 + at.head * o.b2_head + c0 * o.b2_row, o.b2_row, left, DEPTH2, TILE_C, direct);
    producer_commit(line, 2 * n);
    stage_rows(producer_acquire(line, 2 * n + 1), o.b + at.head * o.b_head + c0 * o.b_row, o.b_row, left, DEPTH, TILE_C,
               direct);
    producer_commit(line, 2 * n + 1);
    at = next;
  }
  return n;
}
#else
// A producer holds 4 x 4 blocks of a tile in registers: 4 rows by 4 elements of the depth. The 4 rows are neighbours in
// the permuted order that add_values reads. Eight producers have blocks of the same columns. They start with different
// rows of their blocks, so that their stores by rows go to different banks. held_row returns the row of the tile that
// `held[i]` of producer p has.
#define HELD (2 * B_CHUNKS)  // number of float4 of a tile that a producer holds in registers
ALWAYS_INLINE int held_row(const int p, const int i) {
  const int quad = p & 7;
  return i / 4 * TILE_K + (quad >> 1) * 8 + ((i + (quad >> 1)) & 3) * 2 + (quad & 1);
}
ALWAYS_INLINE void fetch_tile(float4* held, int p, __global const float* from, const long stride, const int left,
                              const int depth, const int quads) {
  RECOMPUTE_FROM(p);
  const int d = value_column(p);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = held_row(p, i);
    held[i] = fetch_quad(from + row * stride + d, 1, row < left ? depth - d : 0, quads);
  }
}
ALWAYS_INLINE void put_held_rows(const Pipeline line, const int stage, int p, const float4* held) {
  __local float* to = producer_acquire(line, stage);
  RECOMPUTE_FROM(p);
  const int d = value_column(p);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i)
    store_row_quad(to + d / TILE_K * PIECES * B_ELEMENTS, held_row(p, i), d % TILE_K / 4, held[i]);
  producer_commit(line, stage);
}
ALWAYS_INLINE void put_columns(const Pipeline line, const int stage, int p, const float4* held) {
  __local float* to = producer_acquire(line, stage);
  RECOMPUTE_FROM(p);
  const int by1 = p >> 1 & 1, by2 = p >> 2 & 1;
  OCL_UNROLL
  for (int block = 0; block < 2; ++block) {
    const float4* x = held + 4 * block;
    const float4 y[4] = {by1 ? x[3] : x[0], by1 ? x[0] : x[1], by1 ? x[1] : x[2], by1 ? x[2] : x[3]};
    const float4 z[4] = {by2 ? y[2] : y[0], by2 ? y[3] : y[1], by2 ? y[0] : y[2], by2 ? y[1] : y[3]};
    store_transposed_block(to + block * PIECES * B_ELEMENTS, value_column(p), p & 7, z);
  }
  producer_commit(line, stage);
}
ALWAYS_INLINE int produce(const Pipeline line, const ColumnOperands o, __local float* statistics, int n,
                          const int quads SEEN_PARAMS) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  float4 held[HELD];
  Place at = first_place(o.steps, o.heads SEEN_PASS);
#if PASS == 2
  float2 loaded = statistics_at(o, at);
#endif
  for (; at.head < o.heads; ++n) {
    const int c0 = o.begin + at.step * TILE_C, left = o.columns - c0;
    const Place next = next_place(at, o.steps SEEN_PASS);
    fetch_tile(held, p, o.b + at.head * o.b_head + c0 * o.b_row, o.b_row, left, DEPTH, quads);
#if PASS == 2
    // Once the step's first stage is free, no consumer reads the statistics that put_statistics overwrites.
    producer_acquire(line, TILES * n);
    loaded = put_statistics(statistics, o, n, next, loaded);
#endif
    put_held_rows(line, TILES * n, p, held);
    put_columns(line, TILES * n + 1, p, held);
    fetch_tile(held, p, o.b2 + at.head * o.b2_head + c0 * o.b2_row, o.b2_row, left, DEPTH2, quads);
    put_held_rows(line, TILES * n + 2, p, held);
    if (PASS == 2) put_columns(line, TILES * n + 3, p, held);
    at = next;
  }
  return n;
}
#endif

// ---- what the consumers of both passes share ----
// consume_columns does the steps of a task. n: number of the steps taken before, over all tasks. Returns the number of
// those taken after it.
//
// DRAW_PARAMS declares the parameters of a function that draws random numbers. DRAW_PASS passes them on.
#if DROPOUT
#define DRAW_PARAMS , Draws draws
#define DRAW_PASS , draws
#define DECLARE_KEEP_BITS uint keep_bits[KEEP_WORDS];
#else
#define DRAW_PARAMS
#define DRAW_PASS
#define DECLARE_KEEP_BITS
#endif
