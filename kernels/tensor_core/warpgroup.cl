// kernels/tensor_core/warpgroup.cl: the pipeline of the warpgroup kernels: instructions, staging of both
// operands, the multiply loop. Comes after tensor_core/operands.cl.
//
// A work-group computes a TILE_M x TILE_N tile of C in fp32. One warpgroup (128 work-items) produces: it brings TILE_K
// of the depth, 128 bytes a row, a step into one of STAGES buffers. TILE_M / 64 warpgroups consume: each multiplies its
// 64 rows on the matrix unit.
//
//   operands of 32 bits: A from registers, B from local memory
//   producer                         local memory, STAGES times                     consumer w: rows 64w .. 64w+63
//   A by cp.async (any strides)  ->  a [TILE_M][32] (or [32][TILE_M])           ->  registers, split there
//   B through registers, split   ->  b high part [TILE_N][32], then low part    ->  read by the matrix unit
//                                    full[stage], empty[stage]: mbarriers
//   operands of 16 bits (IN_BF16, IN_HALF): the unit reads both from local memory, and either order of their dimensions
//   A, B by cp.async             ->  [rows][64] (or blocks of 64 rows, each [64][64])
//
// The unit multiplies TF32 (10 bits of mantissa). With TERMS 3 a float is high + low, both TF32, and low*high' +
// high*low' + high*high' has the error of fp32 or less. The unit truncates its running sums, so each step starts a new
// one, which is added to the total in fp32 registers: that is what keeps sums of thousands of products as exact as in
// fp32. Operands that are not finite give NaN. With TERMS 1 (TF32 allowed) there is only the high part. Products of
// 16-bit operands are exact, and their sums stay in the unit over the whole depth: what truncation loses (1e-5 of a sum
// of ten thousand) is far below what rounding the result to 16 bits loses.
//
// Text after //@ is a comment for the compiler, which knows a smaller instruction set than the driver's assembler; the
// runtime uncovers it (csrc/runtime/hidden_instructions.h).
#ifndef TILE_M
#define TILE_M 128  // rows of C a work-group: 64 a consumer
#endif
#ifndef TILE_N
// columns of C a work-group: 64 or 128; 256 with operands of 16 bits, or of TF32 where they are packed
#define TILE_N 128
#endif
#ifndef PACKED
#define PACKED 0  // 1: one work-item copies both operands, which are packed in blocks (gemm/packed_warpgroup.cl)
#endif
#ifndef STAGES  // buffers in local memory
#if PACKED
#define STAGES (TILE_M + PARTS * TILE_N <= 256 && TILE_M + PARTS * TILE_N > 192 ? 6 : 4)
#else
#define STAGES (HALVES && TILE_N < 256 ? 6 : 4)
#endif
#endif
#define CONSUMERS (TILE_M / 64)
#ifndef PRODUCERS
#define PRODUCERS (PACKED && TILE_M <= 128 ? 32 : 128)  // work-items that stage, after the consumers
#endif
#ifndef B_PACKED
#define B_PACKED 0  // 1: one work-item copies B, which is packed in blocks, and all of them copy A (conv/warpgroup.cl)
#endif
// What a stage waits for: copies of blocks; of chunks; 32 bits: copies of A, stores of B.
#define STAGERS (PACKED ? 1 : B_PACKED ? PRODUCERS + 1 : HALVES ? PRODUCERS : 2 * PRODUCERS)
#define GROUP (CONSUMERS * 128 + PRODUCERS)
#define A_ELEMENTS (TILE_M * TILE_K)
#define B_ELEMENTS (TILE_N * TILE_K)
#define PARTS (TERMS == 3 ? 2 : 1)  // of an operand that is split: high, low
// attention: a stage is a tile of one operand, TILE_C rows of DEPTH_TILE elements
#ifdef TILE_C
#ifndef DEPTH_TILE
#define DEPTH_TILE 64
#endif
#define STAGE_ELEMENTS (PARTS * TILE_C * DEPTH_TILE)
#else
#define STAGE_ELEMENTS (A_ELEMENTS + PARTS * B_ELEMENTS)
#endif
#define ROWS_APART (PRODUCERS / 8)  // rows between two chunks of a producer when 8 producers share a row
#define A_CHUNKS (TILE_M * TILE_K / CHUNK / PRODUCERS)
#define B_CHUNKS (TILE_N * TILE_K / CHUNK / PRODUCERS)

// ---- instructions ----
// The nearest TF32, ties away from zero, as the bits of a float. Integer instructions: the conversion instruction runs
// at an eighth of their rate.
ALWAYS_INLINE uint to_tf32(const float x) {
  return (as_uint(x) + 0x1000u) & 0xFFFFE000u;
}
// The same for an operand of the unit, which does not look at the 13 lowest bits.
ALWAYS_INLINE uint for_unit(const float x) {
  return as_uint(x) + 0x1000u;
}
ALWAYS_INLINE void barrier_init(const uint bar, const uint arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
ALWAYS_INLINE void barrier_arrive(const uint bar) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(bar) : "memory");
}
// Arrives when this work-item's copies by copy_16 and copy_4 so far are complete.
ALWAYS_INLINE void barrier_arrive_after_copies(const uint bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
#ifndef WAIT_TRIES
#define MORE_TRIES 1
#else
#define MORE_TRIES (++tries < WAIT_TRIES)  // a wait that gives up: the check of a device must end
#endif
ALWAYS_INLINE void barrier_wait(const uint bar, const uint parity) {
  uint done, tries = 0;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
  } while (!done && MORE_TRIES);
}
// All 32 work-items of the warp have come here.
ALWAYS_INLINE void warp_sync(void) {
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}
// Orders this work-item's stores to local memory before the matrix unit's reads. For all memory it would also wait for
// loads on their way.
ALWAYS_INLINE void fence_for_unit(void) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Arrives, and lets the barrier wait for copies of as many bytes by copy_block.
ALWAYS_INLINE void barrier_expect(const uint bar, const uint bytes) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(bar), "r"(bytes) : "memory");
}
// A multiple of 16 bytes from global to local memory, both at multiples of 16 bytes; the unit may read it once the
// barrier is complete.
ALWAYS_INLINE void copy_block(const uint to, __global const float* from, const uint bytes, const uint bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"((ulong)(size_t)from), "r"(bytes), "r"(bar)
               : "memory");
}
// Operands of an instruction: its sums %0 .. %(TILE_N / 2 - 1), then what is multiplied.
#define NUMBERS_0                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_32                                                                   \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NUMBERS_64                                                                   \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NUMBERS_96                                                                               \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS(d, i)                                                                                                  \
  "+f"((d)[i + 0]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]), "+f"((d)[i + 5]),       \
      "+f"((d)[i + 6]), "+f"((d)[i + 7]), "+f"((d)[i + 8]), "+f"((d)[i + 9]), "+f"((d)[i + 10]), "+f"((d)[i + 11]), \
      "+f"((d)[i + 12]), "+f"((d)[i + 13]), "+f"((d)[i + 14]), "+f"((d)[i + 15]), "+f"((d)[i + 16]),                \
      "+f"((d)[i + 17]), "+f"((d)[i + 18]), "+f"((d)[i + 19]), "+f"((d)[i + 20]), "+f"((d)[i + 21]),                \
      "+f"((d)[i + 22]), "+f"((d)[i + 23]), "+f"((d)[i + 24]), "+f"((d)[i + 25]), "+f"((d)[i + 26]),                \
      "+f"((d)[i + 27]), "+f"((d)[i + 28]), "+f"((d)[i + 29]), "+f"((d)[i + 30]), "+f"((d)[i + 31])
// d (64 rows x TILE_N, a warpgroup's registers) = a * b, added to d if keep is "1".
#if HALVES
#ifdef IN_BF16
#define UNIT_TYPES "f32.bf16.bf16"
#else
#define UNIT_TYPES "f32.f16.f16"
#endif
// a (64 x 16) and b (16 x TILE_N) by descriptors; `transposed`, of both: "0" where the depth is contiguous, "1" where
// the other dimension is.
#define MULTIPLY_BY(columns, numbers, a_number, b_number, d, a, b, keep, transposed, ...)                 \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, " keep ", 0; wgmma.mma_async.sync.aligned.m64n" columns \
               "k16." UNIT_TYPES " {" numbers "}, " a_number ", " b_number ", p, 1, 1, " transposed "; }" \
               : __VA_ARGS__                                                                              \
               : "l"(a), "l"(b))
#define MULTIPLY_AS(d, a, b, keep, transposed) OCL_CAT(MULTIPLY_, TILE_N)(d, a, b, keep, transposed)
#define MULTIPLY_256(d, a, b, keep, transposed)                                                                \
  MULTIPLY_BY("256", NUMBERS_0 ", " NUMBERS_32 ", " NUMBERS_64 ", " NUMBERS_96, "%128", "%129", d, a, b, keep, \
              transposed, SUMS(d, 0), SUMS(d, 32), SUMS(d, 64), SUMS(d, 96))
#define MULTIPLY_128(d, a, b, keep, transposed) \
  MULTIPLY_BY("128", NUMBERS_0 ", " NUMBERS_32, "%64", "%65", d, a, b, keep, transposed, SUMS(d, 0), SUMS(d, 32))
#define MULTIPLY_64(d, a, b, keep, transposed) \
  MULTIPLY_BY("64", NUMBERS_0, "%32", "%33", d, a, b, keep, transposed, SUMS(d, 0))
// d += a * b: a (64 x 16) in registers, of b's dimensions the columns are contiguous.
#define MULTIPLY_HELD_BY(columns, numbers, a_numbers, b_number, d, a, b, ...)                                        \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" columns "k16." UNIT_TYPES \
               " {" numbers "}, {" a_numbers "}, " b_number ", p, 1, 1, 1; }"                                        \
               : __VA_ARGS__                                                                                         \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b))
#define MULTIPLY_HELD_128(d, a, b) \
  MULTIPLY_HELD_BY("128", NUMBERS_0 ", " NUMBERS_32, "%64, %65, %66, %67", "%68", d, a, b, SUMS(d, 0), SUMS(d, 32))
#define MULTIPLY_HELD_64(d, a, b) MULTIPLY_HELD_BY("64", NUMBERS_0, "%32, %33, %34, %35", "%36", d, a, b, SUMS(d, 0))
// a_rows, b_rows (constants): whether the depth is contiguous.
#define MULTIPLY(d, a, b, keep, a_rows, b_rows) \
  {                                             \
    if (a_rows && b_rows)                       \
      MULTIPLY_AS(d, a, b, keep, "0, 0");       \
    else if (a_rows)                            \
      MULTIPLY_AS(d, a, b, keep, "0, 1");       \
    else if (b_rows)                            \
      MULTIPLY_AS(d, a, b, keep, "1, 0");       \
    else                                        \
      MULTIPLY_AS(d, a, b, keep, "1, 1");       \
  }
#else
// a (64 x 8) in registers, b (8 x TILE_N) by a descriptor.
#define MULTIPLY_BY(columns, numbers, a_numbers, b_number, d, a, b, keep, ...)                            \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, " keep ", 0; wgmma.mma_async.sync.aligned.m64n" columns \
               "k8.f32.tf32.tf32 {" numbers "}, {" a_numbers "}, " b_number ", p, 1, 1; }"                \
               : __VA_ARGS__                                                                              \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b))
#if TILE_N == 128
#define MULTIPLY(d, a, b, keep) \
  MULTIPLY_BY("128", NUMBERS_0 ", " NUMBERS_32, "%64, %65, %66, %67", "%68", d, a, b, keep, SUMS(d, 0), SUMS(d, 32))
#else
#define MULTIPLY(d, a, b, keep) MULTIPLY_BY("64", NUMBERS_0, "%32, %33, %34, %35", "%36", d, a, b, keep, SUMS(d, 0))
#endif
// d += a * b: both by descriptors, the depth contiguous.
#define MULTIPLY_ROWS_BY(columns, numbers, a_number, b_number, d, a, b, ...)                       \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" columns \
               "k8.f32.tf32.tf32 {" numbers "}, " a_number ", " b_number ", p, 1, 1; }"            \
               : __VA_ARGS__                                                                       \
               : "l"(a), "l"(b))
#define MULTIPLY_ROWS(d, a, b) OCL_CAT(MULTIPLY_ROWS_, TILE_N)(d, a, b)
#define MULTIPLY_ROWS_256(d, a, b)                                                                            \
  MULTIPLY_ROWS_BY("256", NUMBERS_0 ", " NUMBERS_32 ", " NUMBERS_64 ", " NUMBERS_96, "%128", "%129", d, a, b, \
                   SUMS(d, 0), SUMS(d, 32), SUMS(d, 64), SUMS(d, 96))
#define MULTIPLY_ROWS_128(d, a, b) \
  MULTIPLY_ROWS_BY("128", NUMBERS_0 ", " NUMBERS_32, "%64", "%65", d, a, b, SUMS(d, 0), SUMS(d, 32))
#define MULTIPLY_ROWS_64(d, a, b) MULTIPLY_ROWS_BY("64", NUMBERS_0, "%32", "%33", d, a, b, SUMS(d, 0))
#endif
#define UNIT_BEGIN() asm volatile("//@wgmma.fence.sync.aligned;" ::: "memory")
#define UNIT_COMMIT() asm volatile("//@wgmma.commit_group.sync.aligned;" ::: "memory")
// until all but the latest groups are complete
#define UNIT_WAIT(but) asm volatile("//@wgmma.wait_group.sync.aligned " but ";" ::: "memory")
#define UNIT_END() \
  UNIT_COMMIT();   \
  UNIT_WAIT("0")
#define READY(x) asm volatile("" : "+f"(x))  // the unit's sums are not ready before it has ended
// Moves registers between warpgroups: each work-item of this one has n from here on, a multiple of 8.
#define REGISTERS_MORE(n) asm volatile("//@setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define REGISTERS_LESS(n) asm volatile("//@setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))

// ---- where an element lies in a stage ----
// The width contiguous (the depth: row_chunk of tensor_core/operands.cl). 32 bits: A as [32][TILE_M], read by
// work-items, the chunks permuted by the depth. 16 bits: blocks of 64 columns, each
// [64][64] and permuted like rows, for the unit.
ALWAYS_INLINE int column_chunk(const int depth, const int chunk) {
#if HALVES
  return (chunk >> 3) * (64 * TILE_K) + depth * 64 + ((chunk & 7) ^ (depth & 7)) * CHUNK;
#else
  return depth * TILE_M + (chunk ^ ((depth & 3) << 1)) * CHUNK;
#endif
}

// ---- pipeline ----
typedef struct {
  __local UNIT_T* stages;
  uint full, empty;  // local addresses of STAGES mbarriers each
} Pipeline;

#define PIPELINE(name)                                                                                        \
  __local UNIT_T name##_stages[STAGES * STAGE_ELEMENTS] __attribute__((aligned(1024)));                       \
  __local ulong name##_bars[2 * STAGES];                                                                      \
  const Pipeline name = {name##_stages, local_address(name##_bars), local_address(name##_bars) + 8 * STAGES}; \
  pipeline_init(name)

// Where 256 work-items produce for two consumers, a work-item has 128 registers, too few for sums: producers give some
// of theirs away.
#if PRODUCERS == 256 && CONSUMERS == 2
#define PRODUCERS_BEGIN() REGISTERS_LESS(80)
#define CONSUMERS_BEGIN() REGISTERS_MORE(168)
#else
#define PRODUCERS_BEGIN()
#define CONSUMERS_BEGIN()
#endif

ALWAYS_INLINE void pipeline_init(const Pipeline p) {
  if (get_local_id(0) == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(p.full + 8 * i, STAGERS);
      barrier_init(p.empty + 8 * i, CONSUMERS * 4);  // each warp of the consumers
    }
    fence_for_unit();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}
// The stage of a step once its consumers have left it.
ALWAYS_INLINE __local UNIT_T* produce_begin(const Pipeline p, const int step) {
  const int stage = step % STAGES;
  if (step >= STAGES) barrier_wait(p.empty + 8 * stage, (step / STAGES - 1) & 1);
  return p.stages + stage * STAGE_ELEMENTS;
}
// Blocks, as pack/group.cl writes them: 64 of the width, 128 bytes of the depth.
#define BLOCK 2048  // floats
#define BLOCK_ELEMENTS (64 * TILE_K)
#define BLOCK_BYTES 8192
// Copies a step's blocks of `panels` of up to `most` panels, which lie `apart` floats from one another, in `parts`
// (high, low) each.
ALWAYS_INLINE void copy_blocks(__local UNIT_T* to, __global const float* from, const int panels, const int most,
                               const long apart, const int parts, const uint bar) {
  OCL_UNROLL
  for (int i = 0; i < most; ++i) {
    if (i >= panels) continue;
    OCL_UNROLL
    for (int part = 0; part < parts; ++part)
      copy_block(local_address(to + part * B_ELEMENTS + i * BLOCK_ELEMENTS), from + i * apart + part * BLOCK,
                 BLOCK_BYTES, bar);
  }
}
#if HALVES
// The unit reads what cp.async wrote: the work-item that copied waits for its copies and orders them before the unit's
// reads. It does so LAG steps later, so that the copies of LAG steps are on their way.
#ifndef LAG
#define LAG (STAGES - 2)
#endif
ALWAYS_INLINE void produced(const Pipeline p, const int step) {
  fence_for_unit();
  barrier_arrive(p.full + 8 * (step % STAGES));
}
ALWAYS_INLINE void produce_end(const Pipeline p, const int step) {
  copies_end();
  if (step < LAG) return;
  COPIES_WAIT(LAG);
  produced(p, step - LAG);
}
// After the last step of all tiles.
ALWAYS_INLINE void produce_rest(const Pipeline p, const int steps) {
  COPIES_WAIT(0);
  for (int step = max(steps - LAG, 0); step < steps; ++step) produced(p, step);
}
// Up to CHUNK elements `stride` apart, `valid` of them inside the matrix, zeros beyond; direct: neighbours at a
// multiple of 16 bytes.
ALWAYS_INLINE void stage_chunk(__local UNIT_T* to, __global const UNIT_T* from, const long stride, const int valid,
                               const int direct) {
  if (direct) {
    copy_16(local_address(to), from, 2 * clamp(valid, 0, CHUNK));
  } else {
    ushort x[CHUNK];
    OCL_UNROLL
    for (int j = 0; j < CHUNK; ++j) x[j] = j < valid ? from[j * stride] : 0;
    *(__local ushort8*)to = (ushort8)(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
  }
}
#else
ALWAYS_INLINE void produce_end(const Pipeline p, const int step) {
  const uint full = p.full + 8 * (step % STAGES);
#if !B_PACKED
  fence_for_unit();
  barrier_arrive(full);
#endif
  barrier_arrive_after_copies(full);
}
// Four floats `stride` apart, `valid` of them inside the matrix; direct: neighbours at a multiple of 16 bytes, all or
// none of them inside.
ALWAYS_INLINE void stage_chunk(__local UNIT_T* to, __global const UNIT_T* from, const long stride, const int valid,
                               const int direct) {
  const uint at = local_address(to);
  if (direct) {
    copy_16(at, from, valid > 0 ? 16 : 0);
  } else {
    OCL_UNROLL
    for (int j = 0; j < 4; ++j) copy_4(at + 4 * j, j < valid ? from + j * stride : from, j < valid ? 4 : 0);
  }
}
ALWAYS_INLINE float4 fetch_quad(__global const float* from, const long stride, const int valid, const int quads) {
  float4 v = (float4)(0.0f);
  if (quads) {
    if (valid > 0) v = *(__global const float4*)from;
  } else {
    if (valid > 0) v.x = from[0];
    if (valid > 1) v.y = from[stride];
    if (valid > 2) v.z = from[2 * stride];
    if (valid > 3) v.w = from[3 * stride];
  }
  return v;
}
// A quad of B along the depth.
ALWAYS_INLINE void keep_row_quad(__local float* b, const int row, const int quad, const float4 v) {
  const float4 high = as_float4((uint4)(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w)));
  const int at = row_chunk(row, quad);
  *(__local float4*)(b + at) = high;
#if TERMS == 3
  const float4 rest = v - high;
  *(__local float4*)(b + B_ELEMENTS + at) =
      as_float4((uint4)(for_unit(rest.x), for_unit(rest.y), for_unit(rest.z), for_unit(rest.w)));
#endif
}
// A producer's share of B when its columns are contiguous: blocks of 4 depths x 4 columns. It loads quads along the
// columns and stores quads along the depth: the transposition costs nothing. Of 32 neighbours 8 load the 128 bytes of a
// line, for 4 blocks down the depth; stores by 8 neighbours, 4 down the depth and 2 blocks of columns, meet different
// banks.
#define B_BLOCKS (B_CHUNKS / 4)
ALWAYS_INLINE int column_of(const int p) {
  return ((p >> 5) * B_BLOCKS >> 1) * 32 + (p >> 2 & 7) * 4;
}
ALWAYS_INLINE int depth_of(const int p, const int block) {
  return ((((p >> 5) * B_BLOCKS + block) & 1) * 4 + (p & 3)) * 4;
}
ALWAYS_INLINE void keep_block(__local float* b, const int column, const int quad, const float4* rows) {
  keep_row_quad(b, column, quad, (float4)(rows[0].x, rows[1].x, rows[2].x, rows[3].x));
  keep_row_quad(b, column + 1, quad, (float4)(rows[0].y, rows[1].y, rows[2].y, rows[3].y));
  keep_row_quad(b, column + 2, quad, (float4)(rows[0].z, rows[1].z, rows[2].z, rows[3].z));
  keep_row_quad(b, column + 3, quad, (float4)(rows[0].w, rows[1].w, rows[2].w, rows[3].w));
}
#endif

// ---- consumer ----
// A matrix of a stage for the unit: address / 16, 128-byte swizzle, 1024 bytes from one block of 8 rows (or 8 of the
// depth) to the next; where columns are contiguous, also the bytes from one block of 64 columns to the next.
ALWAYS_INLINE ulong descriptor_of(__local const UNIT_T* at, const int apart) {
  return ((ulong)(apart / 16) << 16) | ((ulong)64 << 32) | ((ulong)1 << 62) | ((local_address(at) & 0x3FFFF) >> 4);
}
ALWAYS_INLINE ulong descriptor(__local const UNIT_T* at, const int rows) {
  return descriptor_of(at, rows ? 16 : 64 * TILE_K * (int)sizeof(UNIT_T));
}

// This warp has read a step. All of it has: a work-item that still waited for the stage would miss the phase that ends
// now.
ALWAYS_INLINE void leave(const Pipeline line, const int step) {
  warp_sync();
  if ((get_local_id(0) & 31) == 0) barrier_arrive(line.empty + 8 * (step % STAGES));
}
// The stage of a step once it is complete.
ALWAYS_INLINE __local const UNIT_T* arrived(const Pipeline line, const int step) {
  barrier_wait(line.full + 8 * (step % STAGES), (step / STAGES) & 1);
  return line.stages + step % STAGES * STAGE_ELEMENTS;
}

// total[2*j .. 2*j+1]: of TILE_N / 8 blocks of 8 columns, row r (even j) or r + 8 (odd j), columns (j/2)*8 + 2*(lane %
// 4) and the next. The steps are begin .. end - 1 of those that the pipeline's producers count. a_rows, b_rows: whether
// the depth is contiguous.
#if HALVES
ALWAYS_INLINE void consume(float* total, const Pipeline p, const int begin, const int end, const int a_rows,
                           const int b_rows) {
  const int warpgroup = get_local_id(0) >> 7;
  // 16 of the depth further: 32 bytes along a row, 16 rows of 128 bytes.
  const int a_next = a_rows ? 2 : 128, b_next = b_rows ? 2 : 128;
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) total[i] = 0.0f;
  for (int step = begin; step < end; ++step) {
    const int stage = step % STAGES;
    barrier_wait(p.full + 8 * stage, (step / STAGES) & 1);
    __local const UNIT_T* at = p.stages + stage * STAGE_ELEMENTS;
    const ulong a = descriptor(at + warpgroup * 64 * TILE_K, a_rows), b = descriptor(at + A_ELEMENTS, b_rows);
    UNIT_BEGIN();
    MULTIPLY(total, a, b, "1", a_rows, b_rows);
    MULTIPLY(total, a + a_next, b + b_next, "1", a_rows, b_rows);
    MULTIPLY(total, a + 2 * a_next, b + 2 * b_next, "1", a_rows, b_rows);
    MULTIPLY(total, a + 3 * a_next, b + 3 * b_next, "1", a_rows, b_rows);
    UNIT_END();
    if ((get_local_id(0) & 31) == 0) barrier_arrive(p.empty + 8 * stage);
    OCL_UNROLL
    for (int i = 0; i < TILE_N / 2; ++i) READY(total[i]);
  }
}
#else
// The fragment of A that the unit takes from this work-item, for 8 of the depth: rows r and r + 8, depths d and d + 4.
ALWAYS_INLINE void read_fragment(float* x, __local const float* a, const int k8, const int a_rows) {
  const int lane = get_local_id(0) & 31, row = (get_local_id(0) >> 5) * 16 + (lane >> 2), depth = lane & 3;
  if (a_rows) {
    const int first = row_chunk(row, 2 * k8) + depth, second = row_chunk(row, 2 * k8 + 1) + depth;
    x[0] = a[first];
    x[1] = a[first + 8 * TILE_K];
    x[2] = a[second];
    x[3] = a[second + 8 * TILE_K];
  } else {
    const int first = column_chunk(8 * k8 + depth, row >> 2) + (row & 3),
              second = column_chunk(8 * k8 + depth, (row + 8) >> 2) + (row & 3);
    x[0] = a[first];
    x[1] = a[second];
    x[2] = a[first + 4 * TILE_M];
    x[3] = a[second + 4 * TILE_M];
  }
}

// Splits the fragment for 8 of a step's depth.
ALWAYS_INLINE void split_fragment(uint* high, uint* low, const int k8, const float* x) {
  OCL_UNROLL
  for (int j = 0; j < 4; ++j) {
    high[4 * k8 + j] = to_tf32(x[j]);
    low[4 * k8 + j] = for_unit(x[j] - as_float(high[4 * k8 + j]));
  }
}
// sum = a * b over a step's depth; 8 of the depth are 2 units of b's descriptor further. The small products first: each
// addition truncates at the size of the sum so far.
#if TERMS == 3
#define MULTIPLY_SPLIT(sum, high, low, b)                \
  MULTIPLY(sum, low, b, "0");                            \
  MULTIPLY(sum, low + 4, b + 2, "1");                    \
  MULTIPLY(sum, low + 8, b + 4, "1");                    \
  MULTIPLY(sum, low + 12, b + 6, "1");                   \
  MULTIPLY(sum, high, b + B_ELEMENTS / 4, "1");          \
  MULTIPLY(sum, high + 4, b + B_ELEMENTS / 4 + 2, "1");  \
  MULTIPLY(sum, high + 8, b + B_ELEMENTS / 4 + 4, "1");  \
  MULTIPLY(sum, high + 12, b + B_ELEMENTS / 4 + 6, "1"); \
  MULTIPLY(sum, high, b, "1");                           \
  MULTIPLY(sum, high + 4, b + 2, "1");                   \
  MULTIPLY(sum, high + 8, b + 4, "1");                   \
  MULTIPLY(sum, high + 12, b + 6, "1")
#else
#define MULTIPLY_SPLIT(sum, high, low, b) \
  MULTIPLY(sum, high, b, "0");            \
  MULTIPLY(sum, high + 4, b + 2, "1");    \
  MULTIPLY(sum, high + 8, b + 4, "1");    \
  MULTIPLY(sum, high + 12, b + 6, "1")
#endif

ALWAYS_INLINE void consume(float* total, const Pipeline p, const int begin, const int end, const int a_rows,
                           const int b_rows) {
  float sum[TILE_N / 2];
  uint high[16], low[16];
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) total[i] = sum[i] = 0.0f;
  for (int step = begin; step < end; ++step) {
    const int stage = step % STAGES;
    barrier_wait(p.full + 8 * stage, (step / STAGES) & 1);
    __local const float* a = p.stages + stage * STAGE_ELEMENTS;
    OCL_UNROLL
    for (int k8 = 0; k8 < 4; ++k8) {
      float x[4];
      read_fragment(x, a, k8, a_rows);
      split_fragment(high, low, k8, x);
    }
    const ulong b = descriptor(a + A_ELEMENTS, 1);
    UNIT_BEGIN();
    MULTIPLY_SPLIT(sum, high, low, b);
    UNIT_END();
    if ((get_local_id(0) & 31) == 0) barrier_arrive(p.empty + 8 * stage);
    OCL_UNROLL
    for (int i = 0; i < TILE_N / 2; ++i) {
      READY(sum[i]);
      total[i] += sum[i];
    }
  }
}
#endif

// A group takes every get_num_groups(0)-th tile: its producers bring the next tile while its consumers store the last
// one.
#define FOR_TILES(g, tiles) for (int g = get_group_id(0); g < (tiles); g += get_num_groups(0))
