// kernels/tensor_core/nibbles.cl: products of a matrix of int4 with up to 8 rows of bf16, for generated reductions.
// The 16 rows of the instruction are rows of the matrix, its 8 columns are rows of bf16. Lane l has rows l / 4 and l / 4 + 8 of
// the matrix and column l / 4. A depth of 16 is half of four words, one of each of lanes 0 to 3; which elements these are does
// not matter, as long as both operands have the same.

// ---- instructions ----
// Returns c + a * b. c: rows l / 4 and l / 4 + 8, columns 2 * (l % 4) and the next. a: the first pair of both rows, then the
// second. b: two pairs of the column.
OCL_INLINE float4 multiply_bf16(float4 c, uint4 a, uint2 b) {
  float4 d;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "f"(c.x), "f"(c.y), "f"(c.z), "f"(c.w));
  return d;
}
// Returns two floats as bf16, the first in the lower half.
OCL_INLINE uint pair_bf16(float x, float y) {
  uint both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  return both;
}
// Returns halves 0 and 4 of a word, plus 128, as bf16: the halves are the lowest bits of 128. (word & 0x000f000f) | 0x43004300
OCL_INLINE uint nibble_pair(uint word) {
  uint pair;
  asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(pair) : "r"(word), "r"(0x43004300u));
  return pair;
}
// NIBBLE_COPY_n starts a copy of n words from global to local memory, without registers. NIBBLE_WAIT(but) waits for all groups of
// this work-item's copies except the `but` latest ones; nibble_commit ends a group.
#define NIBBLE_COPY(how, bytes, to, from)                                                         \
  asm volatile("cp.async." how ".shared.global [%0], [%1], " bytes ";" ::"r"((uint)(size_t)(to)), \
               "l"((ulong)(size_t)(from))                                                         \
               : "memory")
#define NIBBLE_COPY_1(to, from) NIBBLE_COPY("ca", "4", to, from)
#define NIBBLE_COPY_2(to, from) NIBBLE_COPY("ca", "8", to, from)
#define NIBBLE_COPY_4(to, from) NIBBLE_COPY("cg", "16", to, from)
#define NIBBLE_WAIT(but) asm volatile("cp.async.wait_group %0;" ::"n"(but) : "memory")
OCL_INLINE void nibble_commit(void) {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// ---- where an element lies ----
// Copies bytes that are not aligned.
OCL_INLINE void nibble_copy_bytes(__local uchar* to, __global const uchar* from, int bytes) {
#pragma clang loop unroll(disable)
  for (int i = 0; i < bytes; ++i) to[i] = from[i];
}

// The four pairs of a word: halves 0 and 4, 1 and 5, 2 and 6, 3 and 7. low, high: what the lower and the higher halves of its four
// bytes are multiplied by.
OCL_INLINE uint4 nibble_row(float4 low, float4 high) {
  return (uint4)(pair_bf16(low.s0, low.s2), pair_bf16(high.s0, high.s2), pair_bf16(low.s1, low.s3),
                 pair_bf16(high.s1, high.s3));
}
// Returns c plus the products of a word of each row, with 128 added to its elements.
OCL_INLINE float4 nibble_product(float4 c, uint upper, uint lower, uint4 x) {
  c = multiply_bf16(
      c, (uint4)(nibble_pair(upper), nibble_pair(lower), nibble_pair(upper >> 4), nibble_pair(lower >> 4)), x.lo);
  return multiply_bf16(
      c, (uint4)(nibble_pair(upper >> 8), nibble_pair(lower >> 8), nibble_pair(upper >> 12), nibble_pair(lower >> 12)),
      x.hi);
}
// Returns c plus the sums of the columns.
OCL_INLINE float4 nibble_sum(float4 c, uint4 x) {
  return multiply_bf16(multiply_bf16(c, (uint4)(0x3f803f80u), x.lo), (uint4)(0x3f803f80u), x.hi);
}
