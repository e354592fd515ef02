// kernels/base/philox_lanes.cl: PHILOX_LANES defines uniform random numbers for vectors, where four neighbours share a counter.
// One round on 32-bit words in lanes of 64 bits, where one product has both halves.
#define PHILOX_WIDE_ROUND(WORD)                               \
  p0 = c0 * (WORD)(0xD2511F53), p1 = c2 * (WORD)(0xCD9E8D57); \
  c0 = (p1 >> (WORD)(32)) ^ c1 ^ k0, c1 = p1 & low;           \
  c2 = (p0 >> (WORD)(32)) ^ c3 ^ k1, c3 = p0 & low;           \
  k0 = (k0 + (WORD)(0x9E3779B9)) & low, k1 = (k1 + (WORD)(0xBB67AE85)) & low;

#define PHILOX_TWO(ROUND) ROUND ROUND
#define PHILOX_FIVE(ROUND) ROUND ROUND ROUND ROUND ROUND

// Defines op_philox_lane for W = 4 * N lanes ("" for an N of 1). Lanes whose indices follow each other from a multiple of four on
// share N counters, which give all their words. op_philox_each computes a counter for each lane.
#define PHILOX_LANES(W, N)                                                                                           \
  OCL_INLINE float##W op_philox_lane_i64x##W(long##W seed, long##W offset, long##W index) {                          \
    const long##W following = (long##W)(index.s0) + (long##W)PHILOX_INDICES##W;                                      \
    const int is_one_key = all(seed == (long##W)(seed.s0)) && all(offset == (long##W)(offset.s0));                   \
    if ((index.s0 & 3) != 0 || !all(index == following) || !is_one_key)                                              \
      return op_philox_each_i64x##W(seed, offset, index);                                                            \
    const ulong##N block = (ulong##N)(as_ulong(index.s0 >> 2)) + (ulong##N)PHILOX_BLOCKS##W,                         \
                   low = (ulong##N)(0xffffffff);                                                                     \
    ulong##N c0 = (ulong##N)(as_ulong(offset.s0)) & low, c1 = (ulong##N)(as_ulong(offset.s0)) >> (ulong##N)(32);     \
    ulong##N c2 = block & low, c3 = block >> (ulong##N)(32);                                                         \
    ulong##N k0 = (ulong##N)(as_ulong(seed.s0)) & low, k1 = (ulong##N)(as_ulong(seed.s0)) >> (ulong##N)(32), p0, p1; \
    PHILOX_TWO(PHILOX_FIVE(PHILOX_WIDE_ROUND(ulong##N)))                                                             \
    return convert_float##W(convert_uint##W((ulong##W)PHILOX_WORDS##W) >> (uint##W)(8)) * (float##W)(0x1p-24f);      \
  }
#define PHILOX_WORDS_OF(i) c0.s##i, c1.s##i, c2.s##i, c3.s##i
#define PHILOX_INDICES4 (0, 1, 2, 3)
#define PHILOX_BLOCKS4 (0)
#define PHILOX_WORDS4 (c0, c1, c2, c3)
#define PHILOX_INDICES8 (0, 1, 2, 3, 4, 5, 6, 7)
#define PHILOX_BLOCKS8 (0, 1)
#define PHILOX_WORDS8 (PHILOX_WORDS_OF(0), PHILOX_WORDS_OF(1))
#define PHILOX_INDICES16 (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define PHILOX_BLOCKS16 (0, 1, 2, 3)
#define PHILOX_WORDS16 (PHILOX_WORDS_OF(0), PHILOX_WORDS_OF(1), PHILOX_WORDS_OF(2), PHILOX_WORDS_OF(3))
