// kernels/attention/parameters.cl: parameters and small functions that the kernels of attention share. Comes before the other
// files of its folder.
#ifndef PASS
#define PASS 0  // 0: attention; 1: gradient of queries; 2: of keys and values; 3: of all
#endif
#if PASS == 3
#define MAPS 4  // tensor maps of a work-group
#define LONGEST 256  // the most queries, and keys
#define QUERIES_HELD LONGEST  // of which statistics are in local memory, in a row
#elif PASS == 0
#define MAPS 3  // with BOXES
#endif
#define ROWS_ARE_KEYS (PASS >= 2)  // 1: rows of the scores are keys, columns are queries; 0: the other way round
#ifndef DEPTH
#define DEPTH 64  // head size of q and k, elements
#endif
#ifndef DEPTH2
#define DEPTH2 64  // PASS 1 to 3: head size of v, elements
#endif
#ifndef WIDTH
#define WIDTH 64  // size of a row of the output, elements: PASS 0: head size of v, else DEPTH
#endif
#ifndef SCALE
#define SCALE 0.125f  // factor of the scores
#endif
#ifndef CAUSAL
#define CAUSAL 0  // 1: query i sees keys j <= i
#endif
#ifndef MASK
// 1: bool, false hides the score; 2: IN_T, added to the score; 3: float, added; 4: computed by MASK_VALUE(batch, head, query,
// key) and added. On CPUs, MASK_LANES returns VW values of neighbouring columns.
#define MASK 0
#endif
#define STORED_MASK (MASK && MASK != 4)  // 1: the mask is in memory
#ifndef MASK_HIDES
#define MASK_HIDES (MASK == 1)  // 1: the mask hides scores and adds nothing to others
#endif
#ifndef MASK_ADDS
#define MASK_ADDS (MASK == 2 || MASK == 3)  // 1: the mask is only added, which hides nothing that is not finite
#endif
#ifndef BLOCKS
// Rows and columns of the blocks of which `blocks` says what the mask hides: all (0), some (1), nothing (2 or 3). 0: not given
#define BLOCKS 0
#endif
// CAP: if it is defined, scores become CAP tanh(score / CAP) before the mask
#ifndef NAN_ROWS
#define NAN_ROWS 0  // 1: a query that sees no key gives nan; 0: zero
#endif
#ifndef DROPOUT
#define DROPOUT 0  // 1: an element of p is dropped with probability DROP, otherwise multiplied by KEPT
#endif
#ifndef DROP
#define DROP 0.5f
#define KEPT 2.0f
#endif

#if MASK == 1
#define MASK_T uchar
#elif MASK == 2
#define MASK_T IN_T
#else
#define MASK_T float
#endif

#if MASK == 4
// Returns x, score or scores, plus its computed mask. A hidden score is -inf even if x is not finite.
#define ADD_MASK(x, mask) (!MASK_ADDS && (mask) == -INFINITY ? (mask) : (x) + (mask))
#endif

// Returns 1 / row_sum. For a query that sees no key it returns 0, or nan with NAN_ROWS.
ALWAYS_INLINE float inverse_of(const float row_sum) {
  return row_sum == 0.0f ? (NAN_ROWS ? NAN : 0.0f) : 1.0f / row_sum;
}

#if BLOCKS
// The arguments of seen_columns for a head.
#define BLOCKS_OF(batch, head)                                                                                       \
  blocks + blocks_offset + (batch) * blocks_batch + (head) * blocks_head, ROWS_ARE_KEYS ? blocks_key : blocks_query, \
      ROWS_ARE_KEYS ? blocks_query : blocks_key
// Returns the columns (begin, end) among c0 .. c0 + count - 1 of which the mask does not hide every row of r0 .. r1, to
// whole blocks, relative to c0. begin >= end: it hides all. blocks: of the head; down, along: its strides.
ALWAYS_INLINE int2 seen_columns(__global const uchar* blocks, const long down, const long along, const int r0,
                                const int r1, const int c0, const int count) {
  int2 seen = (int2)(count, 0);
  OCL_NO_UNROLL
  for (int c = c0 / BLOCKS; c * BLOCKS < c0 + count; ++c) {
    int any_row = 0;
    OCL_NO_UNROLL
    for (int r = r0 / BLOCKS; r <= r1 / BLOCKS; ++r) any_row |= blocks[r * down + c * along];
    if (!any_row) continue;
    seen.x = min(seen.x, max(c * BLOCKS - c0, 0));
    seen.y = min((c + 1) * BLOCKS - c0, count);
  }
  return seen;
}
#endif

#if DROPOUT
// Returns the random words of a counter, for four neighbouring keys of a query. state: seed and offset. csrc/ir/graph.h
// says which counter belongs to which score.
ALWAYS_INLINE uint4 draw_words(__global const long* state, const ulong counter) {
  const ulong seed = as_ulong(state[0]), offset = as_ulong(state[1]);
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
  uint x = (uint)offset, y = (uint)(offset >> 32), z = (uint)counter, w = (uint)(counter >> 32);
  OCL_UNROLL
  PHILOX_ROUNDS(uint, x, y, z, w, k0, k1)
  return (uint4)(x, y, z, w);
}
#endif
