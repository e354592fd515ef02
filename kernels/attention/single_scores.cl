// kernels/attention/single_scores.cl: what attention on tensor cores computes of a single score or query, whichever lane
// has it: scale, random numbers, statistics. Comes after attention/parameters.cl, before attention/scores.cl or
// attention/shared_subgroup_matrix.cl.
#ifndef DIRECT
#define DIRECT 0  // 1: all sizes and strides of rows are multiples of 16 bytes
#endif
#define LOG2E 1.44269504f
#if MASK && !MASK_HIDES
#define SCORE_SCALE 1.0f  // scale still to be applied to the scores: none, since a mask is added to scaled scores
#else
#define SCORE_SCALE SCALE
#endif
#define TO_LOG2 (SCORE_SCALE * LOG2E)

// MASK_PARAMS declares the parameters of a function that masks scores. MASK_PASS passes them on. mask_head: the stride
// between heads of a mask in memory, and the head itself of a mask that is computed.
#if MASK == 4
#define MASK_PARAMS , const int batch, int mask_head EPILOGUE_FUNCTION_PARAMS
#define MASK_PASS , batch, mask_head EPILOGUE_PASS
#define NEXT_MASK_HEAD ++mask_head
#elif MASK
#define MASK_PARAMS , __global const MASK_T *mask, const long mask_head, const long mask_query, const long mask_key
#define MASK_PASS , mask, mask_head, mask_query, mask_key
#define NEXT_MASK_HEAD mask += mask_head
#else
#define MASK_PARAMS
#define MASK_PASS
#define NEXT_MASK_HEAD
#endif

#if DROPOUT
// Describes the random numbers of one head's scores.
typedef struct {
  __global const long* state;
  ulong queries_before, per_query;  // queries in all batches and heads before this one; random counters for each query
} Draws;
// Draws random numbers for keys key .. key + 3 of a query. Returns four bits: bit i is 1 if the score of key + i is kept.
ALWAYS_INLINE uint draw_kept(const Draws o, const int query, const int key) {
  const uint4 words = draw_words(o.state, (o.queries_before + query) * o.per_query + key / 4);
#define KEPT_BIT(x, i) ((uint)((float)((x) >> 8) * 0x1p-24f >= DROP) << (i))
  return KEPT_BIT(words.x, 0) | KEPT_BIT(words.y, 1) | KEPT_BIT(words.z, 2) | KEPT_BIT(words.w, 3);
}
#endif

#if PASS
// Statistics of one head's queries. sums holds row_max of all queries, and `which` floats later row_sum of all queries.
// delta holds one float for each query.
typedef struct {
  __global const float *sums, *delta;
  long which;
  int queries;
} QueryStatistics;
// Returns (lse, delta) of a query. lse is log2 of the sum of 2^(s log2(e)) over the keys. For a query beyond the last
// one lse is infinite, so that p is zero.
ALWAYS_INLINE float2 load_statistics(const QueryStatistics o, const int query) {
  if (query >= o.queries) return (float2)(INFINITY, 0.0f);
  const float largest = o.sums[query], row_sum = o.sums[o.which + query];
  return (float2)(row_sum == 0.0f ? (NAN_ROWS ? NAN : INFINITY) : fma(largest, LOG2E, log2(row_sum)), o.delta[query]);
}
#endif
