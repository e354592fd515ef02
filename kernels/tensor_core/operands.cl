// kernels/tensor_core/operands.cl: what the kernels on matrix units share: types of operands, copies into local memory,
// conversions. Comes before tensor_core/warpgroup.cl (units of four
// warps) or tensor_core/warp.cl (of one).
//
// Operands are fp32 or, with IN_BF16 or IN_HALF, of 16 bits, as they lie in memory; a chunk is 16 bytes of them, a
// step's depth 8 chunks: a row of 128 bytes.
#if defined(IN_BF16) || defined(IN_HALF)
#define HALVES 1
#define UNIT_T ushort
#define CHUNK 8
#undef TERMS
#define TERMS 1
#else
#define HALVES 0
#define UNIT_T float
#define CHUNK 4
#endif
#ifndef TERMS
#define TERMS 3  // products a pair of floats: 3 (fp32), 1 (TF32)
#endif
#define TILE_K (8 * CHUNK)
#define CHUNK_ALIGNED(offset) (ALIGNED_BASES || (offset) % CHUNK == 0)  // as ALIGNED, for chunks

// Stores of a whole tile have no condition each, so that an epilogue's loads are on their way together: STOREA, as
// STOREV but for aligned vectors.
#ifndef STORES_ALIGNED
#define STORES_ALIGNED 0
#define STOREA STOREV
#endif

// ---- instructions ----
ALWAYS_INLINE uint local_address(__local const void* p) {
  return (uint)(size_t)p;
}
// 16 or 4 bytes from global to local memory without registers; `bytes` of them are read, the rest is zero.
ALWAYS_INLINE void copy_16(const uint to, __global const UNIT_T* from, const uint bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"((ulong)(size_t)from), "r"(bytes)
               : "memory");
}
ALWAYS_INLINE void copy_4(const uint to, __global const UNIT_T* from, const uint bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"((ulong)(size_t)from), "r"(bytes)
               : "memory");
}
// Ends a group of this work-item's copies; waits until all but its latest groups are complete.
ALWAYS_INLINE void copies_end(void) {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
#define COPIES_WAIT(but) asm volatile("cp.async.wait_group %0;" ::"n"(but) : "memory")
// in a loop: what follows from the int is computed anew each time, not kept in registers
#define FRESH(x) asm volatile("" : "+r"(x))
// Two floats as an operand of 16 bits, `first` in the low half.
ALWAYS_INLINE uint two_halves(const float first, const float second) {
  uint both;
#ifdef IN_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#endif
  return both;
}
// And back.
ALWAYS_INLINE float2 unit_values(const uint both) {
#ifdef IN_BF16
  return as_float2((uint2)(both << 16, both & 0xffff0000u));
#else
  float2 values;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(values.x), "=f"(values.y)
      : "r"(both));
  return values;
#endif
}
// 2^x with an error of two units in the last place; subnormal results are zero.
ALWAYS_INLINE float exp2_of(const float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The x of the lane whose number differs from this one's by the bit.
#define OTHER_LANE(y, x, bit) asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=f"(y) : "f"(x), "n"(bit))

// ---- where an element lies in a stage ----
// Depth contiguous: the 8 chunks of a row are permuted by the row, so that 8 rows read at once touch different banks.
// Units of four warps know this order.
ALWAYS_INLINE int row_chunk(const int row, const int chunk) {
  return row * TILE_K + (chunk ^ (row & 7)) * CHUNK;
}

// Tile number g, in bands of 8 rows: the groups that run at once share operands in the cache. Gives row and column of
// the tile.
ALWAYS_INLINE int2 tile_at(const int g, const int m_tiles, const int n_tiles) {
  const int band = g / (8 * n_tiles) * 8, rows = min(m_tiles - band, 8), in_band = g - band * n_tiles;
  return (int2)(band + in_band % rows, in_band / rows);
}
