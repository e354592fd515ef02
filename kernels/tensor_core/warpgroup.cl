// kernels/tensor_core/warpgroup.cl: the pipeline of the warpgroup kernels: staging of both operands, the multiply loop.
// Comes after tensor_core/wgmma.cl.
//
// A work-group computes a TILE_M x TILE_N tile of C in fp32. Some work-items are producers: in each step they copy
// TILE_K elements along the depth, 128 bytes per row, into one of STAGES buffers. The other TILE_M / 64 warpgroups are
// consumers: each multiplies its 64 rows on the tensor cores.
//
//   operands of 32 bits: A from registers, B from local memory
//   producer                         local memory, STAGES times                     consumer w: rows 64w .. 64w+63
//   A by cp.async (any strides)  ->  a [TILE_M][32] (or [32][TILE_M])           ->  registers, split there
//   B through registers, split   ->  b high part [TILE_N][32], then low part    ->  read by the tensor cores
//                                    full[stage], empty[stage]: mbarriers
//   operands of 16 bits (IN_BF16, IN_HALF): the tensor cores read both from local memory, in either order of their
//   dimensions
//   A, B by cp.async             ->  [rows][64] (or blocks of 64 rows, each [64][64])
//
// Tensor cores multiply TF32 (10 bits of mantissa). With TERMS 3 a float is split into high + low, both TF32. The sum
// low*high' + high*low' + high*high' then has the error of fp32 or less. Tensor cores truncate their running sums. So
// each step starts a new sum, which is added to the total in fp32 registers. This keeps sums of thousands of products
// as exact as in fp32. Operands that are not finite give NaN. With TERMS 1 (TF32 allowed) there is only the high part.
// Packed operands of fp32 (PAIRS) are split into fp16 instead, which are multiplied at twice the speed.
// Products of 16-bit operands are exact, and one running sum serves the whole depth: truncation loses 1e-5 of a sum of
// ten thousand, much less than rounding the result to 16 bits does.
// Macros of a launch: TILE_M (rows of C per work-group: 64 per consumer). STAGES (buffers in local memory), and
// CRAMPED_STAGES where fewer fit beside the statistics of columns, or beside the rows that consumers exchange
// (tensor_core/store.cl). PRODUCER_REGISTERS, CONSUMER_REGISTERS: of each work-item, if producers give some to consumers.
// With 256 producers and two consumers, or 128 and three, each would have 128 registers, too few for the sums. With 128
// and two it would have 168, too few for 128 sums and a long epilogue.
#if defined(CRAMPED_STAGES) && (STATISTICS || VW == 2)
#undef STAGES
#define STAGES CRAMPED_STAGES
#endif
// B_STEPS: with boxes, a work-group keeps the B of its columns in local memory, if its depth has this many steps. It has
// KEPT_STAGES then, of A alone. All tiles of the work-group have the same columns.
#if defined(B_STEPS) && BOXES && ALIGNED_BASES && !STATISTICS
#define B_KEPT 1
#undef STAGES
#define STAGES KEPT_STAGES
#define KEPT_ELEMENTS (B_STEPS * B_ELEMENTS)
#else
#define B_KEPT 0
#define KEPT_ELEMENTS 0
#endif
#ifndef TURNS
#define TURNS 0  // 1: two consumers multiply whole tiles in turn. While one stores its tile, the other multiplies.
#endif
#define CONSUMERS (TURNS ? 2 : TILE_M / 64)
#define SHARERS (TURNS ? 1 : CONSUMERS)  // consumers that share a tile
#define ROW_BLOCKS (TILE_M / 64 / SHARERS)  // blocks of 64 rows that a consumer multiplies
#define SUMS_OF_BLOCK (TILE_N / 2)  // sums of a work-item in such a block
#ifndef PRODUCERS
#ifdef AT_ONCE  // work-groups that share a compute unit, with BOXES
#define PRODUCERS 32
#else
#define PRODUCERS (PACKED && TILE_M <= 128 ? 32 : 128)  // work-items that copy; their ids follow the consumers'
#endif
#endif
#ifndef B_PACKED
#define B_PACKED 0  // 1: one work-item copies B, which is packed in blocks, and all of them copy A (conv/warpgroup.cl)
#endif
#ifndef BOXES
#define BOXES 0  // 1: one work-item copies both operands in boxes (tensor maps)
#endif
// The number of arrivals that make a stage full. Copies of packed blocks arrive once in all, copies of chunks once for
// each producer. With 32-bit operands that are not packed a producer arrives twice: for its copies of A and for its
// stores of B.
#define FULL_ARRIVALS (PACKED ? 1 : B_PACKED ? PRODUCERS + 1 : HALVES ? PRODUCERS : 2 * PRODUCERS)
#define GROUP_SIZE (CONSUMERS * 128 + PRODUCERS)
#define A_ELEMENTS (TILE_M * TILE_K)
#define B_ELEMENTS (TILE_N * TILE_K)
#define PIECES (TERMS == 3 ? 2 : 1)  // numbers that a float is split into: high, and low with TERMS 3
// attention: a stage is a tile of one operand, TILE_C rows of DEPTH_TILE elements
#ifdef TILE_C
#ifndef DEPTH_TILE
#define DEPTH_TILE 64
#endif
#define STAGE_ELEMENTS (PIECES * TILE_C * DEPTH_TILE)
// Buffers for the rows of a task. The producers fill the second one while the last task is computed. Gradients of 32-bit
// operands have no memory for it.
#define HELD_TILES (HALVES || PASS == 0 ? 2 : 1)
#else
#define HELD_TILES 0
#define STAGE_ELEMENTS ((PAIRS ? 2 : 1) * A_ELEMENTS + (B_KEPT ? 0 : PIECES * B_ELEMENTS))
#endif
#define ROWS_APART (PRODUCERS / 8)  // rows between two chunks of a producer when 8 producers share a row
#define A_CHUNKS (TILE_M * TILE_K / CHUNK / PRODUCERS)
#define B_CHUNKS (TILE_N * TILE_K / CHUNK / PRODUCERS)

// ---- where an element lies in a stage ----
// Returns the offset of a chunk in a stage, in elements, for an operand whose width is contiguous in memory. (row_chunk
// of tensor_core/operands.cl is for contiguous depth.) depth: position along K; chunk: number of the chunk along the
// width.
//   32 bits: A as [32][TILE_M], its chunks permuted by the depth; work-items read it.
//   16 bits: blocks of 64 columns, each [64][64] and permuted like rows; tensor cores read it.
ALWAYS_INLINE int column_chunk(const int depth, const int chunk) {
#if HALVES
  return (chunk >> 3) * (64 * TILE_K) + depth * 64 + ((chunk & 7) ^ (depth & 7)) * CHUNK;
#else
  return depth * TILE_M + (chunk ^ ((depth & 3) << 1)) * CHUNK;
#endif
}

// ---- pipeline ----
typedef struct {
  __local OPERAND_T* stages;
  uint full,
      empty;  // local addresses of STAGES mbarriers each; more of them follow `empty`: HELD_TILES, two for TURNS, one for B_KEPT
} Pipeline;

#define MORE_BARRIERS (TURNS ? 2 : B_KEPT ? 1 : HELD_TILES)
// PIPELINE makes the pipeline of a work-group. arrivals: the number that makes a stage full.
#define PIPELINE(name) PIPELINE_OF(name, FULL_ARRIVALS)
#define PIPELINE_OF(name, arrivals)                                                                           \
  __local OPERAND_T name##_stages[STAGES * STAGE_ELEMENTS + KEPT_ELEMENTS] __attribute__((aligned(1024)));    \
  __local ulong name##_bars[2 * STAGES + MORE_BARRIERS];                                                      \
  const Pipeline name = {name##_stages, local_address(name##_bars), local_address(name##_bars) + 8 * STAGES}; \
  pipeline_init(name, arrivals)

// Declares the local memory for a tensor map, and `boxes`: 1 if this launch copies in boxes. usable: 1 if both operands
// begin at a multiple of 16 bytes.
#if BOXES
#define DECLARE_BOXES(usable)                          \
  __local ulong map[16] __attribute__((aligned(128))); \
  const int boxes = usable
#else
#define DECLARE_BOXES(usable) const int boxes = 0
#endif

#ifdef PRODUCER_REGISTERS
#define PRODUCERS_BEGIN() SHRINK_REGISTERS(PRODUCER_REGISTERS)
#define CONSUMERS_BEGIN() GROW_REGISTERS(CONSUMER_REGISTERS)
#else
#define PRODUCERS_BEGIN()
#define CONSUMERS_BEGIN()
#endif

ALWAYS_INLINE void pipeline_init(const Pipeline p, const int arrivals) {
  SHARE_UNIT();
  if (get_local_id(0) == 0) {
    for (int i = 0; i < STAGES; ++i) barrier_init(p.full + 8 * i, arrivals);
    // one arrival for each warp of the consumers that share a tile
    for (int i = 0; i < STAGES + MORE_BARRIERS; ++i)
      barrier_init(p.empty + 8 * i, B_KEPT && i == STAGES ? 1 : SHARERS * 4);
    fence_async_proxy();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}
// Waits until the consumers have released the stage of a step, and returns the stage.
ALWAYS_INLINE __local OPERAND_T* producer_acquire(const Pipeline p, const int step) {
  const int stage = step % STAGES;
  if (step >= STAGES) barrier_wait(p.empty + 8 * stage, (step / STAGES - 1) & 1);
  return p.stages + stage * STAGE_ELEMENTS;
}
// A block of a packed operand (pack/group.cl) has 64 elements of the width, each with 128 bytes of the depth.
#define BLOCK 2048  // floats
#define BLOCK_ELEMENTS (64 * TILE_K)
// Copies the blocks of a step from global memory to a stage: `panels` panels of PIECES blocks each (the high part,
// then the low part). Panels begin `panel_stride` floats apart. max_panels: a constant that bounds `panels`, so that
// the loop unrolls. In the stage, the low parts of all panels follow the high parts. bar: the mbarrier that counts the
// copied bytes.
ALWAYS_INLINE void copy_blocks(__local OPERAND_T* to, __global const float* from, const int panels,
                               const int max_panels, const long panel_stride, const uint bar) {
  OCL_UNROLL
  for (int i = 0; i < max_panels; ++i) {
    if (i >= panels) continue;
    OCL_UNROLL
    for (int piece = 0; piece < PIECES; ++piece)
      copy_block(local_address(to + (piece * max_panels + i) * BLOCK_ELEMENTS), from + i * panel_stride + piece * BLOCK,
                 4 * BLOCK, bar);
  }
}
#if HALVES
// Before a producer arrives, its cp.async copies must be complete and ordered before the reads of the tensor cores. So
// it arrives LAG steps after it has issued the copies of a step. Meanwhile the copies of LAG steps are in flight.
#ifndef LAG
#ifdef TILE_C
#define LAG 2  // the stages of one step: see acquire_rows
#else
#define LAG (STAGES > 3 ? STAGES - 3 : 0)  // one stage more is in use, because consume() releases a stage one step late
#endif
#endif
ALWAYS_INLINE void publish_stage(const Pipeline p, const int step) {
  fence_async_proxy();
  barrier_arrive(p.full + 8 * (step % STAGES));
}
ALWAYS_INLINE void producer_commit(const Pipeline p, const int step) {
  commit_copies();
  if (step < LAG) return;
  WAIT_COPIES(LAG);
  publish_stage(p, step - LAG);
}
// Publishes the stages whose copies are still in flight after the last step of all tiles.
ALWAYS_INLINE void producer_finish(const Pipeline p, const int steps) {
  WAIT_COPIES(0);
  for (int step = max(steps - LAG, 0); step < steps; ++step) publish_stage(p, step);
}
// Copies CHUNK elements of `from`, `stride` elements apart, to `to`. The first `valid` elements are inside the matrix;
// zeros are written for the others. direct: 1 if `stride` is 1 and `from` lies at a multiple of 16 bytes.
ALWAYS_INLINE void stage_chunk(__local OPERAND_T* to, __global const OPERAND_T* from, const long stride,
                               const int valid, const int direct) {
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
ALWAYS_INLINE void producer_commit(const Pipeline p, const int step) {
  const uint full = p.full + 8 * (step % STAGES);
#if !B_PACKED
  fence_async_proxy();
  barrier_arrive(full);
#endif
  barrier_arrive_after_copies(full);
}
// Copies four floats of `from`, `stride` elements apart, to `to`. The first `valid` floats are inside the matrix; zeros
// are written for the others. direct: 1 if `stride` is 1, `from` lies at a multiple of 16 bytes, and all four floats or
// none are inside.
ALWAYS_INLINE void stage_chunk(__local OPERAND_T* to, __global const OPERAND_T* from, const long stride,
                               const int valid, const int direct) {
  const uint at = local_address(to);
  if (direct) {
    copy_16(at, from, valid > 0 ? 16 : 0);
  } else {
    OCL_UNROLL
    for (int j = 0; j < 4; ++j) copy_4(at + 4 * j, j < valid ? from + j * stride : from, j < valid ? 4 : 0);
  }
}
// Returns four floats of `from`, `stride` elements apart, with zeros in place of those from number `valid` on. quads: 1
// if `stride` is 1, `from` lies at a multiple of 16 bytes, and all four floats or none are inside the matrix.
ALWAYS_INLINE float4 fetch_quad(__global const float* from, const long stride, const int valid, const int quads) {
  float4 v = (float4)(0.0f);
  if (quads) return valid > 0 ? *(__global const float4*)from : v;
  if (valid > 0) v.x = from[0];
  if (valid > 1) v.y = from[stride];
  if (valid > 2) v.z = from[2 * stride];
  if (valid > 3) v.w = from[3 * stride];
  return v;
}
// Splits v, four neighbours along the depth, into TF32 pieces and stores them in row `row` of the tile b. quad: number
// of the four floats in the row.
ALWAYS_INLINE void store_row_quad(__local float* b, const int row, const int quad, const float4 v) {
  const float4 high = as_float4((uint4)(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w)));
  const int at = row_chunk(row, quad);
  *(__local float4*)(b + at) = high;
#if TERMS == 3
  const float4 rest = v - high;
  *(__local float4*)(b + B_ELEMENTS + at) = as_float4(
      (uint4)(to_tf32_operand(rest.x), to_tf32_operand(rest.y), to_tf32_operand(rest.z), to_tf32_operand(rest.w)));
#endif
}
// If the columns of B are contiguous, a producer transposes B_BLOCKS blocks of 4 depths x 4 columns: it loads four
// neighbours along the columns and stores four neighbours along the depth. Of 32 neighbouring producers, eight together
// load a cache line of 128 bytes, so a warp covers 4 blocks along the depth. The stores of 8 neighbouring producers (4
// along the depth, 2 blocks of columns) go to different banks. column_of and depth_of return the first column and the
// first depth of block number `block` of producer p.
#define B_BLOCKS (B_CHUNKS / 4)
ALWAYS_INLINE int column_of(const int p) {
  return ((p >> 5) * B_BLOCKS >> 1) * 32 + (p >> 2 & 7) * 4;
}
ALWAYS_INLINE int depth_of(const int p, const int block) {
  return ((((p >> 5) * B_BLOCKS + block) & 1) * 4 + (p & 3)) * 4;
}
ALWAYS_INLINE void store_transposed_block(__local float* b, const int column, const int quad, const float4* rows) {
  store_row_quad(b, column, quad, (float4)(rows[0].x, rows[1].x, rows[2].x, rows[3].x));
  store_row_quad(b, column + 1, quad, (float4)(rows[0].y, rows[1].y, rows[2].y, rows[3].y));
  store_row_quad(b, column + 2, quad, (float4)(rows[0].z, rows[1].z, rows[2].z, rows[3].z));
  store_row_quad(b, column + 3, quad, (float4)(rows[0].w, rows[1].w, rows[2].w, rows[3].w));
}
#endif

// ---- consumer ----
// Returns the number of this warp among those of the consumers that share a tile.
ALWAYS_INLINE int tile_warp(void) {
  return (TURNS ? get_local_id(0) & 127 : get_local_id(0)) >> 5;
}
// descriptor_of returns the wgmma descriptor of the matrix at `at` in a stage: address / 16, 128-byte swizzle, 1024
// bytes from one block of 8 rows (or 8 elements of the depth) to the next. block_stride: bytes from one block of 64
// columns to the next, which matters only if columns are contiguous. rows: 1 if the depth is contiguous, 0 if the
// columns are.
ALWAYS_INLINE ulong descriptor_of(__local const OPERAND_T* at, const int block_stride) {
  return ((ulong)(block_stride / 16) << 16) | ((ulong)64 << 32) | ((ulong)1 << 62) |
         ((local_address(at) & 0x3FFFF) >> 4);
}
ALWAYS_INLINE ulong descriptor(__local const OPERAND_T* at, const int rows) {
  return descriptor_of(at, rows ? 16 : 64 * TILE_K * (int)sizeof(OPERAND_T));
}

// Releases what the mbarrier `bar` guards, which this warp has read. The warp synchronises first. Otherwise the next
// phase of the mbarrier might begin while some work-items of the warp still waited for this phase, and they would wait
// forever.
ALWAYS_INLINE void consumer_release_at(const uint bar) {
  warp_sync();
  if ((get_local_id(0) & 31) == 0) barrier_arrive(bar);
}
ALWAYS_INLINE void consumer_release(const Pipeline p, const int step) {
  consumer_release_at(p.empty + 8 * (step % STAGES));
}
// With TURNS, a consumer begins a tile when the other one has issued all products of the tile before. Then the tile has the
// tensor cores for itself. And the other one has waited for all stages before, so that the parity of a stage's mbarrier is not
// that of an earlier step. number: of the tile, among those of the work-group; the first consumer has the even ones.
ALWAYS_INLINE void begin_turn(const Pipeline p, const int number) {
  if (number > 0) barrier_wait(p.empty + 8 * (STAGES + (number & 1)), ((number - 1) >> 1) & 1);
}
// Gives the tensor cores to the other consumer.
ALWAYS_INLINE void end_turn(const Pipeline p) {
  consumer_release_at(p.empty + 8 * (STAGES + 1 - (get_local_id(0) >> 7)));
}
// Waits until the stage of a step is full, and returns it.
ALWAYS_INLINE __local const OPERAND_T* consumer_wait(const Pipeline p, const int step) {
  barrier_wait(p.full + 8 * (step % STAGES), (step / STAGES) & 1);
  return p.stages + step % STAGES * STAGE_ELEMENTS;
}

// consume writes to total the product a * b over steps begin .. end - 1 of the producers. total[2*j] and total[2*j + 1]
// are columns (j/2)*8 + 2*(lane % 4) and the next, of row r (even j) or r + 8 (odd j), where r = 16 * warp + lane / 4.
// a_rows, b_rows: 1 if the depth of the operand is contiguous.
// With 16-bit operands, the products of a step are issued before those of the previous step are complete. Its stage is
// released one step later. With several ROW_BLOCKS, the sums of a block follow those of the one before.
#if HALVES
ALWAYS_INLINE void consume(float* total, const Pipeline p, const int begin, const int end, const int a_rows,
                           const int b_rows) {
  // how far a descriptor advances for 16 elements of the depth, in units of 16 bytes: 32 bytes along a row, or 16 rows
  // of 128 bytes
  const int a_next = a_rows ? 2 : 128, b_next = b_rows ? 2 : 128;
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * SUMS_OF_BLOCK; ++i) total[i] = 0.0f;
  for (int step = begin; step < end; ++step) {
    __local const OPERAND_T* at = consumer_wait(p, step);
    const ulong b =
        descriptor(B_KEPT ? p.stages + STAGES * STAGE_ELEMENTS + (step - begin) * B_ELEMENTS : at + A_ELEMENTS, b_rows);
    WGMMA_FENCE();
    OCL_UNROLL
    for (int block = 0; block < ROW_BLOCKS; ++block) {
      float* sums = total + block * SUMS_OF_BLOCK;
      const ulong a = descriptor(at + (tile_warp() / 4 + block) * BLOCK_ELEMENTS, a_rows);
      MULTIPLY(sums, a, b, "1", a_rows, b_rows);
      MULTIPLY(sums, a + a_next, b + b_next, "1", a_rows, b_rows);
      MULTIPLY(sums, a + 2 * a_next, b + 2 * b_next, "1", a_rows, b_rows);
      MULTIPLY(sums, a + 3 * a_next, b + 3 * b_next, "1", a_rows, b_rows);
    }
    WGMMA_COMMIT();
    WGMMA_WAIT("1");
    if (step > begin) consumer_release(p, step - 1);
  }
  if (TURNS) end_turn(p);
  WGMMA_WAIT("0");
  if (end > begin) consumer_release(p, end - 1);
  OCL_UNROLL
  for (int i = 0; i < ROW_BLOCKS * SUMS_OF_BLOCK; ++i) FENCE_REGISTER(total[i]);
}
#else
// Writes to x this work-item's four elements of A for instruction k8 (8 elements of the depth): rows r and r + 8 at
// depths d and d + 4, with r = 16 * warp + lane / 4 and d = lane % 4. a_rows: 1 if the depth of A is contiguous.
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

// Splits the four floats x into TF32 pieces, and writes these to `high` and `low` as the operands of instruction k8.
ALWAYS_INLINE void split_fragment(uint* high, uint* low, const int k8, const float* x) {
  OCL_UNROLL
  for (int j = 0; j < 4; ++j) {
    high[4 * k8 + j] = to_tf32(x[j]);
    low[4 * k8 + j] = to_tf32_operand(x[j] - as_float(high[4 * k8 + j]));
  }
}
// sum = a * b over a step's depth. high, low: the TF32 parts of a in registers. b: the descriptor of the high part of
// b; the low part follows it in memory. A descriptor advances by 2 (32 bytes) for 8 elements of the depth. The small
// products come first, because each addition truncates at the size of the sum so far.
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
    WGMMA_FENCE();
    MULTIPLY_SPLIT(sum, high, low, b);
    WGMMA_FINISH();
    if ((get_local_id(0) & 31) == 0) barrier_arrive(p.empty + 8 * stage);
    OCL_UNROLL
    for (int i = 0; i < TILE_N / 2; ++i) {
      FENCE_REGISTER(sum[i]);
      total[i] += sum[i];
    }
  }
}
#endif

// Persistent work-groups: each takes every get_num_groups(0)-th tile. Its producers copy the next tile while its
// consumers store the last one.
#define FOR_TILES(g, tiles) for (int g = get_group_id(0); g < (tiles); g += get_num_groups(0))
// The tiles of a batch of products, one matrix after the other. BATCHED 0: there is one matrix.
#ifndef BATCHED
#define BATCHED 0
#endif
#define TILES (m_tiles * n_tiles * (BATCHED ? batches : 1))
#define BATCH_OF(g) (BATCHED ? (g) / (m_tiles * n_tiles) : 0)
#define TILE_OF(g) tile_at(BATCHED ? (g) % (m_tiles * n_tiles) : (g), m_tiles, n_tiles)
