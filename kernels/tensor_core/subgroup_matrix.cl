// kernels/tensor_core/subgroup_matrix.cl: matrix instructions of a subgroup (DPAS, WMMA, MFMA), and how their operands
// are read from local memory. Comes after tensor_core/types.cl.
//
// One macro says which instructions there are:
//
//   macro            GPUs       lanes  FRAG_M x FRAG_N       macro               GPUs    lanes  FRAG_M x FRAG_N
//   MATRIX_DPAS 8    Arc          8     8 x  8               MATRIX_WMMA 12      RDNA 4   32    16 x 16
//   MATRIX_DPAS 16   Xe-HPC, Xe2 16     8 x 16               MATRIX_MFMA 4, 2    CDNA     64    32 x 32
//   MATRIX_WMMA 11   RDNA 3      32    16 x 16
//
// Which elements lane l has, [row][depth] of A, [depth][column] of B, [row][column] of C:
//
//            element e of A            element e of B            element i of C
//   DPAS 8   [e/2][2l + e%2]           [e][l]                    [i][l]
//   DPAS 16  [e][l]                    [e][l]                    [i][l]
//   of TF32  [2e + l/8][l%8]           [e][l]                    [i][l]
//   WMMA 11  [l%16][e]                 [e][l%16]                 [2i + l/16][l%16]
//   WMMA 12  [l%16][8(l/16) + e]       [8(l/16) + e][l%16]       [8(l/16) + i][l%16]
//   MFMA     [l%32][CHUNK(l/32) + e]   [CHUNK(l/32) + e][l%32]   [8(i/4) + 4(l/32) + i%4][l%32]
//
// DPAS 16 multiplies floats as TF32: a product is three of high and low parts, as in tensor_core/warp.cl. Operands that
// are not finite give NaN. An MFMA instruction takes 4 elements of a lane, 2 of bf16 with MATRIX_MFMA 2 (the first CDNA),
// or 1 float. Several instructions multiply a fragment: each takes the next elements, of A and B alike, so that lanes
// read 16 bytes at once. An instruction of RDNA 4 has element e of its operands at depth 8(e/4) + 4(l/16) + e%4; the
// kernels take it for 8(l/16) + e, which permutes the depth of A and B alike. Sources:
// cl_intel_subgroup_matrix_multiply_accumulate and its variant for TF32; AMD's matrix instruction calculator and the
// manuals of the RDNA 3, RDNA 4 and CDNA instruction sets.
#if !defined(MATRIX_DPAS) && !defined(MATRIX_WMMA) && !defined(MATRIX_MFMA)
#define MATRIX_DPAS 16
#endif
#if defined(MATRIX_DPAS)
#define LANES MATRIX_DPAS
#define FRAG_M 8
#define FRAG_N MATRIX_DPAS
#define FRAG_K (2 * CHUNK)
#define SUBGROUP_SIZE __attribute__((intel_reqd_sub_group_size(LANES)))
typedef float8 FragmentC;
typedef uint8 FragmentB;
#if !HALVES
typedef uint4 FragmentA;
#elif MATRIX_DPAS == 8
typedef uint8 FragmentA;
#else
typedef ushort8 FragmentA;
#endif
typedef FragmentA PartA;
typedef FragmentB PartB;
#elif defined(MATRIX_WMMA)
#define LANES 32
#define FRAG_M 16
#define FRAG_N 16
#define FRAG_K 16
typedef float8 FragmentC;
#if MATRIX_WMMA == 11
typedef uint8 FragmentA;
#else
typedef uint4 FragmentA;
#endif
typedef FragmentA FragmentB;
typedef FragmentA PartA;
typedef FragmentA PartB;
#else
#define LANES 64
#define FRAG_M 32
#define FRAG_N 32
#define FRAG_K (2 * CHUNK)
typedef float16 FragmentC;
typedef uint4 FragmentA;
typedef uint4 FragmentB;
#if !HALVES || (defined(IN_BF16) && MATRIX_MFMA == 2)
#define MFMA_PARTS 4  // instructions of a fragment
typedef uint PartA;
#else
#define MFMA_PARTS 2
typedef uint2 PartA;
#endif
typedef PartA PartB;
#endif
#ifndef SUBGROUP_SIZE
#define SUBGROUP_SIZE
#endif
#ifndef TILE_M
#define TILE_M 128  // rows of C per work-group: a multiple of SUB_M
#endif
#ifndef TILE_N
#define TILE_N 128  // columns of C per work-group: a multiple of SUB_N
#endif
#ifndef SUB_M
#define SUB_M 32  // rows of C per subgroup: a multiple of FRAG_M
#endif
#ifndef SUB_N
#define SUB_N 32  // columns of C per subgroup: a multiple of FRAG_N and 8
#endif
#define SUBS_N (TILE_N / SUB_N)  // subgroups along the columns
#define SUBGROUPS (TILE_M / SUB_M * SUBS_N)
#define GROUP_SIZE (SUBGROUPS * LANES)

// ---- instructions ----
// Returns c + a * b for the operands of one instruction.
#if defined(IN_HALF)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#if defined(MATRIX_DPAS)
#if defined(IN_BF16)
#define DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#else
#define DPAS intel_sub_group_f16_f16_matrix_mad_k16
#endif
// Some drivers have the functions without declaring them.
#if !HALVES
float8 __attribute__((overloadable)) intel_sub_group_tf32_tf32_matrix_mad_k8(float4 a, float8 b, float8 c);
#define INSTRUCTION(a, b, c) intel_sub_group_tf32_tf32_matrix_mad_k8(as_float4(a), as_float8(b), c)
#elif MATRIX_DPAS == 8
float8 __attribute__((overloadable)) DPAS(int8 a, int8 b, float8 c);
#define INSTRUCTION(a, b, c) DPAS(as_int8(a), as_int8(b), c)
#else
float8 __attribute__((overloadable)) DPAS(short8 a, int8 b, float8 c);
#define INSTRUCTION(a, b, c) DPAS(as_short8(a), as_int8(b), c)
#endif
#elif defined(MATRIX_WMMA) && MATRIX_WMMA == 11
#if defined(IN_BF16)
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(a), as_short16(b), c)
#else
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), c)
#endif
#elif defined(MATRIX_WMMA)
#if defined(IN_BF16)
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(as_short8(a), as_short8(b), c)
#else
#define INSTRUCTION(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(as_half8(a), as_half8(b), c)
#endif
#elif !HALVES
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x2f32(as_float(a), as_float(b), c, 0, 0, 0)
#elif defined(IN_HALF)
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x8f16(as_half4(a), as_half4(b), c, 0, 0, 0)
#elif MATRIX_MFMA == 4
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(as_short4(a), as_short4(b), c, 0, 0, 0)
#else
#define INSTRUCTION(a, b, c) __builtin_amdgcn_mfma_f32_32x32x4bf16(as_short2(a), as_short2(b), c, 0, 0, 0)
#endif
ALWAYS_INLINE FragmentC multiply_parts(const PartA a, const PartB b, const FragmentC c) {
  return INSTRUCTION(a, b, c);
}
#if HALVES
// Returns two floats rounded to the operands' 16-bit type, `first` in the low half of the result.
ALWAYS_INLINE uint two_halves(const float first, const float second) {
#if defined(IN_HALF)
  return as_ushort((half)first) | (uint)as_ushort((half)second) << 16;
#else  // to nearest, ties to even; no NaN of a computation overflows here
  const uint2 x = as_uint2((float2)(first, second)), rounded = x + 0x7fffu + (x >> 16 & 1u);
  return rounded.x >> 16 | (rounded.y & 0xffff0000u);
#endif
}
#endif
#ifndef MATRIX_DPAS
// Returns x of the other lane that has elements of the same column of C.
ALWAYS_INLINE uint other_half(const uint x) {
  return __builtin_amdgcn_ds_bpermute((get_local_id(0) % LANES ^ LANES / 2) * 4, x);
}
#endif
// Returns 2^x with an error of a few units in the last place. A subnormal result may become zero.
ALWAYS_INLINE float exp2_of(const float x) {
  return native_exp2(x);
}

// ---- where an element lies ----
ALWAYS_INLINE int lane_id(void) {
  return get_local_id(0) % LANES;
}
// Return the row and the column of the lane's element i of a fragment of C.
ALWAYS_INLINE int fragment_row(const int i) {
#if defined(MATRIX_DPAS)
  return i;
#elif defined(MATRIX_WMMA)
  return MATRIX_WMMA == 11 ? 2 * i + lane_id() / 16 : 8 * (lane_id() / 16) + i;
#else
  return 8 * (i / 4) + 4 * (lane_id() / 32) + i % 4;
#endif
}
ALWAYS_INLINE int fragment_column(void) {
  return lane_id() % FRAG_N;
}

// ---- fragments ----
// Returns the lane's part of a row of A, or a column of B, that begins at `line`, in local memory.
ALWAYS_INLINE FragmentB read_line(__local const OPERAND_T* line) {
  __local const uint4* chunks = (__local const uint4*)line;
#if defined(MATRIX_DPAS) || (defined(MATRIX_WMMA) && MATRIX_WMMA == 11)
  return (uint8)(chunks[0], chunks[1]);
#else
  return chunks[lane_id() / FRAG_N];
#endif
}
// Return the lane's part of a fragment that begins at row and depth 0 of `from`. row: elements from a row of A, or a
// column of B, to the next.
ALWAYS_INLINE FragmentB read_b(__local const OPERAND_T* from, const int row) {
  return read_line(from + fragment_column() * row);
}
ALWAYS_INLINE FragmentA read_a(__local const OPERAND_T* from, const int row) {
#if defined(MATRIX_DPAS) && !HALVES
  __local const uint* at = (__local const uint*)from + lane_id() / 8 * row + lane_id() % 8;
  return (FragmentA)(at[0], at[2 * row], at[4 * row], at[6 * row]);
#elif defined(MATRIX_DPAS)
#if MATRIX_DPAS == 8
  __local const uint* at = (__local const uint*)from + lane_id();
#else
  __local const ushort* at = from + lane_id();
#endif
  const int next = MATRIX_DPAS == 8 ? row / 2 : row;
  return (FragmentA)(at[0], at[next], at[2 * next], at[3 * next], at[4 * next], at[5 * next], at[6 * next],
                     at[7 * next]);
#else
  return read_b(from, row);
#endif
}
#if HALVES
// Returns the elements of two chunks in pairs.
ALWAYS_INLINE uint8 pairs_of(const uint4 first, const uint4 second) {
  const uint4 even = (first & 0xffffu) | second << 16, odd = first >> 16 | (second & 0xffff0000u);
  return (uint8)(even.x, odd.x, even.y, odd.y, even.z, odd.z, even.w, odd.w);
}
#endif
#if defined(MATRIX_DPAS) && HALVES
// Does what read_a does, of the transposed matrix: row is from a depth to the next.
ALWAYS_INLINE FragmentA read_turned_a(__local const OPERAND_T* from, const int row) {
#if MATRIX_DPAS == 8
  __local const OPERAND_T* line = from + 2 * lane_id() * row;
  return pairs_of(*(__local const uint4*)line, *(__local const uint4*)(line + row));
#else
  return *(__local const ushort8*)(from + lane_id() * row);
#endif
}
#endif
// Returns c + a * b for fragments.
ALWAYS_INLINE FragmentC multiply(const FragmentA a, const FragmentB b, const FragmentC c) {
#if defined(MATRIX_DPAS) && !HALVES
  // TF32 lacks the 13 lowest bits of a float. The difference is exact, and has at most 12 bits.
  const FragmentA high_a = (a + 0x1000u) & 0xffffe000u, low_a = as_uint4(as_float4(a) - as_float4(high_a));
  const FragmentB high_b = (b + 0x1000u) & 0xffffe000u, low_b = as_uint8(as_float8(b) - as_float8(high_b));
  return multiply_parts(high_a, high_b, multiply_parts(low_a, high_b, multiply_parts(high_a, low_b, c)));
#elif !defined(MFMA_PARTS)
  return multiply_parts(a, b, c);
#elif MFMA_PARTS == 2
  return multiply_parts(a.hi, b.hi, multiply_parts(a.lo, b.lo, c));
#else
  return multiply_parts(a.s3, b.s3,
                        multiply_parts(a.s2, b.s2, multiply_parts(a.s1, b.s1, multiply_parts(a.s0, b.s0, c))));
#endif
}

// ---- ordered fragments ----
// If the rows of A are read in another order, the elements of a column of C that a lane has are CHUNK
// neighbours at a time (8 with DPAS and WMMA), and are those that the lane must give as a part of B. So a result becomes an operand without an
// exchange, except with WMMA 11, where two lanes need all elements.
#define LANE_SUMS (FRAG_M * FRAG_N / LANES)  // elements of C that a lane has
#define LANE_PART (FRAG_K * FRAG_N / LANES)  // elements of C that a lane gives to one fragment of B
// Returns the row that the lane's element i of a fragment of C stands for.
ALWAYS_INLINE int ordered_row(const int i) {
#if defined(MATRIX_DPAS)
  return i;
#else
  return i / CHUNK * 2 * CHUNK + lane_id() / FRAG_N * CHUNK + i % CHUNK;
#endif
}
// Does what read_a does, in this order.
ALWAYS_INLINE FragmentA read_ordered_a(__local const OPERAND_T* from, const int row) {
#if defined(MATRIX_WMMA) && MATRIX_WMMA == 11
  return read_line(from + (lane_id() % 2 * 8 + lane_id() % FRAG_N / 2) * row);
#elif defined(MATRIX_MFMA) && CHUNK == 8
  const int line = lane_id() % FRAG_N;
  return read_line(from + (line / 16 * 16 + line / 4 % 2 * 8 + line / 8 % 2 * 4 + line % 4) * row);
#else
  return read_a(from, row);
#endif
}
// Returns CHUNK floats as operands.
ALWAYS_INLINE uint4 chunk_of(const float* x) {
#if HALVES
  return (uint4)(two_halves(x[0], x[1]), two_halves(x[2], x[3]), two_halves(x[4], x[5]), two_halves(x[6], x[7]));
#else
  return as_uint4((float4)(x[0], x[1], x[2], x[3]));
#endif
}
// Returns fragment number `at` of B: its depth are the rows of an ordered C. c: the lane's elements.
ALWAYS_INLINE FragmentB ordered_b(const float* c, const int at) {
  const uint4 own = chunk_of(c + at * LANE_PART);
#if defined(MATRIX_DPAS)
  return (uint8)(own, chunk_of(c + at * LANE_PART + CHUNK));
#elif defined(MATRIX_WMMA) && MATRIX_WMMA == 11
  const uint4 other = (uint4)(other_half(own.x), other_half(own.y), other_half(own.z), other_half(own.w));
  return lane_id() < FRAG_N ? (uint8)(own, other) : (uint8)(other, own);
#else
  return own;
#endif
}

// ---- copies into local memory ----
#define DEPTHS (HALVES ? 2 : 1)  // neighbouring depths whose chunks are transposed together
// Returns CHUNK elements of `from`, `stride` elements apart. The first `valid` elements are inside the matrix; the
// others are zeros. direct: 1 if `stride` is 1 and `from` lies at a multiple of 16 bytes.
ALWAYS_INLINE uint4 load_chunk(__global const OPERAND_T* from, const long stride, const int valid, const int direct) {
  if (direct && valid >= CHUNK) return *(__global const uint4*)from;
  OPERAND_T x[CHUNK];
  OCL_UNROLL
  for (int j = 0; j < CHUNK; ++j) x[j] = j < valid ? from[j * stride] : 0;
#if HALVES
  return as_uint4((ushort8)(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]));
#else
  return as_uint4((float4)(x[0], x[1], x[2], x[3]));
#endif
}
// Writes DEPTHS chunks, of neighbouring depths, transposed to CHUNK rows. row: elements from a row to the next.
ALWAYS_INLINE void keep_transposed(__local OPERAND_T* to, const uint4* held, const int row) {
  __local uint* column = (__local uint*)to;
  const int next = row / DEPTHS;
#if HALVES
  const uint8 pairs = pairs_of(held[0], held[1]);
  column[0] = pairs.s0;
  column[next] = pairs.s1;
  column[2 * next] = pairs.s2;
  column[3 * next] = pairs.s3;
  column[4 * next] = pairs.s4;
  column[5 * next] = pairs.s5;
  column[6 * next] = pairs.s6;
  column[7 * next] = pairs.s7;
#else
  column[0] = held[0].x;
  column[next] = held[0].y;
  column[2 * next] = held[0].z;
  column[3 * next] = held[0].w;
#endif
}
