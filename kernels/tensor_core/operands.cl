// kernels/tensor_core/operands.cl: what the kernels with mma and wgmma share: copies into local memory, conversions.
// Comes after tensor_core/types.cl, before tensor_core/wgmma.cl or tensor_core/warp.cl.
//
// A step covers 8 chunks of the depth, so a row of a step has 128 bytes.
#define TILE_K (8 * CHUNK)

#ifndef NARROW_MMA
#define NARROW_MMA 0  // 1: the instructions of compute capability 7.5: fp16, 8 deep, copies through registers
#endif

// ---- instructions ----
ALWAYS_INLINE uint local_address(__local const void* p) {
  return (uint)(size_t)p;
}
// copy_16 and copy_4 start a copy of 16 or 4 bytes from global to local memory, without registers. Only `bytes` bytes
// are read; the remaining ones become zero. copy_whole_16 reads all 16.
ALWAYS_INLINE void copy_16(const uint to, __global const OPERAND_T* from, const uint bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"((ulong)(size_t)from), "r"(bytes)
               : "memory");
}
ALWAYS_INLINE void copy_whole_16(const uint to, __global const OPERAND_T* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"((ulong)(size_t)from) : "memory");
}
ALWAYS_INLINE void copy_4(const uint to, __global const OPERAND_T* from, const uint bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"((ulong)(size_t)from), "r"(bytes)
               : "memory");
}
// commit_copies ends a group of this work-item's copies. WAIT_COPIES(but) waits for all groups except the `but` latest
// ones.
#if NARROW_MMA
#define commit_copies()
#define WAIT_COPIES(but)
#else
ALWAYS_INLINE void commit_copies(void) {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
#define WAIT_COPIES(but) asm volatile("cp.async.wait_group %0;" ::"n"(but) : "memory")
#endif
// In a loop: makes the compiler compute the values derived from the int x again in each iteration, instead of keeping
// them in registers.
#define RECOMPUTE_FROM(x) asm volatile("" : "+r"(x))
// Returns two floats rounded to the operands' 16-bit type, `first` in the low half of the result.
ALWAYS_INLINE uint two_halves(const float first, const float second) {
  uint both;
#ifdef IN_BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#endif
  return both;
}
// Returns the two 16-bit operands that `both` holds as floats.
ALWAYS_INLINE float2 two_floats(const uint both) {
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
// Returns 2^x with an error of two units in the last place. A subnormal result becomes zero.
ALWAYS_INLINE float exp2_of(const float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// y = x of the lane whose number differs from this lane's in the bit `bit`.
#define OTHER_LANE(y, x, bit) asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=f"(y) : "f"(x), "n"(bit))

// ---- where an element lies in a stage ----
// Returns the offset of a chunk in a stage, in elements, for an operand whose depth is contiguous in memory. The 8
// chunks of a row are permuted by the row's number, so that 8 rows which are read at once lie in different banks. This
// is the 128-byte swizzle of wgmma.
ALWAYS_INLINE int row_chunk(const int row, const int chunk) {
  return row * TILE_K + (chunk ^ (row & 7)) * CHUNK;
}
