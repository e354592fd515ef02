// kernels/attention/seen_steps.cl: which steps a work-group of attention on tensor cores takes: all, or only those of
// which the mask does not hide every score; and of which of them it hides no score. Comes after attention/parameters.cl.
//
// A place is a head of queries, among those that share a head of keys and values, and a step of TILE_C columns. At the
// end, head is the number of heads.
typedef struct {
  int head, step;
} Place;

#if BLOCKS
#define STEPS_MARKED 4096  // Later steps are all taken and masked.
#define SEEN_WORDS (STEPS_MARKED / 32)
#define SEEN_PARAMS , __local const uint* seen
#define SEEN_PASS , seen
#define SEEN_OF(o) , (o).seen  // of a struct that keeps it
#define IS_SEEN(step) ((step) >= STEPS_MARKED || seen[(step) >> 5] >> ((step) & 31) & 1)
#define IS_SHOWN(step) (MASK_HIDES && (step) < STEPS_MARKED && seen[SEEN_WORDS + ((step) >> 5)] >> ((step) & 31) & 1)
// The most blocks in which a tile lies.
#define BLOCKS_IN(tile) (((tile) + BLOCKS - 1) / BLOCKS + ((tile) % BLOCKS && BLOCKS % (tile) ? 1 : 0))

// Returns the first step from `step` on that is taken, or at least `steps` if there is none.
ALWAYS_INLINE int seen_from(int step, const int steps SEEN_PARAMS) {
  while (step < min(steps, STEPS_MARKED)) {
    const uint left = seen[step >> 5] >> (step & 31);
    if (left) return step + popcount((left & -left) - 1);
    step = (step | 31) + 1;
  }
  return step;
}

// Sets bit i % 32 of seen[i / 32] if the mask shows a score of step i, and that of seen[SEEN_WORDS + i / 32] if it shows
// all. blocks: of the first head; per_head, down, along: their strides. r0, r1: first and last row of the work-group. begin,
// last: first and last column.
ALWAYS_INLINE void mark_seen(__local uint* seen, __global const uchar* blocks, const long per_head, const long down,
                             const long along, const int r0, const int r1, const int begin, const int last,
                             const int steps, const int heads) {
  for (int i = get_local_id(0); i < 2 * SEEN_WORDS; i += GROUP_SIZE) seen[i] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = get_local_id(0); step < min(steps, STEPS_MARKED); step += GROUP_SIZE) {
    const int c0 = begin + step * TILE_C;
    int any = 0, all = 2;
    for (int head = 0; head < heads; ++head) {
      OCL_UNROLL
      for (int i = 0; i < BLOCKS_IN(TILE_M) * BLOCKS_IN(TILE_C); ++i) {
        const int r = min(r0 / BLOCKS + i / BLOCKS_IN(TILE_C), r1 / BLOCKS),
                  c = min(c0 / BLOCKS + i % BLOCKS_IN(TILE_C), min(c0 + TILE_C - 1, last) / BLOCKS);
        const int block = blocks[head * per_head + r * down + c * along];
        any |= block;
        all &= block;
      }
    }
    if (any) atomic_or(seen + (step >> 5), 1u << (step & 31));
    if (all) atomic_or(seen + SEEN_WORDS + (step >> 5), 1u << (step & 31));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}
// Makes `seen` in a kernel that has the variables of mark_seen, rows, columns and batch. q_head: the first head.
#define MARK_SEEN(q_head, rows, columns, begin, steps, heads)                                          \
  __local uint seen[2 * SEEN_WORDS];                                                                   \
  mark_seen(seen, blocks + blocks_offset + batch * blocks_batch + (q_head) * blocks_head, blocks_head, \
            ROWS_ARE_KEYS ? blocks_key : blocks_query, ROWS_ARE_KEYS ? blocks_query : blocks_key, r0,  \
            min(r0 + TILE_M, rows) - 1, begin, (columns) - 1, steps, heads)
#else
#define SEEN_PARAMS
#define SEEN_PASS
#define SEEN_OF(o)
#define IS_SEEN(step) 1
#define IS_SHOWN(step) 0
#define MARK_SEEN(q_head, rows, columns, begin, steps, heads)
ALWAYS_INLINE int seen_from(const int step, const int steps) {
  return step;
}
#endif

ALWAYS_INLINE Place first_place(const int steps, const int heads SEEN_PARAMS) {
  const int step = seen_from(0, steps SEEN_PASS);
  const Place first = {step < steps ? 0 : heads, step};
  return first;
}
ALWAYS_INLINE Place next_place(Place at, const int steps SEEN_PARAMS) {
  at.step = seen_from(at.step + 1, steps SEEN_PASS);
  if (at.step < steps) return at;
  const Place next = {at.head + 1, seen_from(0, steps SEEN_PASS)};
  return next;
}
