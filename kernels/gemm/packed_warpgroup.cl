// kernels/gemm/packed_warpgroup.cl: batched matrix product of fp32 on warpgroup tensor cores, C[b,m,n] = sum over k of A[b,m,k]
// * B[b,k,n]. Both operands are packed in blocks, as pack/group.cl writes them. The pipeline is in
// tensor_core/warpgroup.cl, the stores are in tensor_core/store.cl.
//
//   producer (one work-item)          a stage                                    consumer w: rows 64w .. 64w+63
//   copies blocks of 8 KB         ->  TILE_M/64 blocks of A, then those of B ->  read by the tensor cores
//                                     full[stage] counts bytes
//
// TERMS 1 (TF32 allowed): one running sum covers the whole depth, and the products of a step are issued before those of
// the previous step are complete. Operands of 16 bits are read in place (gemm/warpgroup.cl), which is as fast.
//
// TERMS 3 (PAIRS): a float x of a line is scaled by a power of two, the same for the 64 elements of the line in a step:
// x = (high + low / 2^11) / scale, both fp16, with 22 bits in all. Then
//   A * B = (high high' + (low high' + high low') / 2^11) / (scale scale'),
// and the products of low parts, at most 2^-22 of it, are left out. An element has all 22 bits if it is at least 2^-29 of
// the largest one in its line and step. The error of a smaller one is 2^-51 of the largest one. In a step, the sum of the
// low parts' products is divided by 2^11 before the others are added to it: a second sum would need more registers than
// there are.
//
// a, b: [batch][panels][steps][STEP_FLOATS], offsets in floats, multiples of 4. a_batch, b_batch: floats from one matrix
//   to the next, 0 if there is only one.
// Grid: as for gemm/warpgroup.cl.
// Epilogue macros: STORE(acc, b, m, n). Store dimension n, VW 2 or as many elements as 16 bytes have. Needs PACKED 1.

#define A_STAGE ((PAIRS ? 2 : 1) * A_ELEMENTS)  // elements of A in a stage
// Floats of a panel in a step: its blocks, then, with PAIRS, 1 / scale of its 64 lines.
#define STEP_FLOATS (PAIRS ? 2 * BLOCK + 64 : BLOCK)
#define SCALES (TILE_M + TILE_N)  // lines of a stage

// Copies the blocks of a tile: `a_panels` panels of A and `b_panels` of B, each of `steps` steps. scales: with PAIRS, the
// local memory for 1 / scale of the lines of each stage. begin: number of the tile's first step, counted over all tiles
// of the work-group.
ALWAYS_INLINE void produce(const Pipeline line, __local float* scales, __global const float* a, __global const float* b,
                           const int a_panels, const int b_panels, const int begin, const int steps) {
  const long panel = (long)steps * STEP_FLOATS;
  for (int step = 0; step < steps; ++step, a += STEP_FLOATS, b += STEP_FLOATS) {
    __local OPERAND_T* to = producer_acquire(line, begin + step);
    const int stage = (begin + step) % STAGES;
    const uint full = line.full + 8 * stage;
    barrier_expect(full, (a_panels + b_panels) * (STEP_FLOATS * 4));
    copy_blocks(to, a, a_panels, TILE_M / 64, panel, full);
    copy_blocks(to + A_STAGE, b, b_panels, TILE_N / 64, panel, full);
#if PAIRS
    __local float* lines = scales + stage * SCALES;
    OCL_UNROLL
    for (int i = 0; i < TILE_M / 64; ++i)
      if (i < a_panels) copy_block(local_address(lines + i * 64), a + i * panel + 2 * BLOCK, 256, full);
    OCL_UNROLL
    for (int i = 0; i < TILE_N / 64; ++i)
      if (i < b_panels) copy_block(local_address(lines + TILE_M + i * 64), b + i * panel + 2 * BLOCK, 256, full);
#endif
  }
}

// sum = a * b over a step's depth, or sum += a * b if `keep` is "1". A descriptor advances by 2 (32 bytes) for a quarter
// of the step's depth.
#define MULTIPLY_STEP(sum, a, b, keep)        \
  MULTIPLY(sum, a, b, keep, 1, 1);            \
  MULTIPLY(sum, (a) + 2, (b) + 2, "1", 1, 1); \
  MULTIPLY(sum, (a) + 4, (b) + 4, "1", 1, 1); \
  MULTIPLY(sum, (a) + 6, (b) + 6, "1", 1, 1)

// Writes to total the product over steps begin .. end - 1, with the layout of consume() in tensor_core/warpgroup.cl.
#if PAIRS
ALWAYS_INLINE void multiply_packed(float* total, const Pipeline line, __local const float* scales, const int begin,
                                   const int end) {
  const int lane = get_local_id(0) & 31, row = (get_local_id(0) >> 5) * 16 + (lane >> 2);
  float sum[TILE_N / 2];
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) total[i] = sum[i] = 0.0f;
  for (int step = begin; step < end; ++step) {
    __local const OPERAND_T* at = consumer_wait(line, step);
    const ulong a = descriptor(at + (get_local_id(0) >> 7) * BLOCK_ELEMENTS, 1), b = descriptor(at + A_STAGE, 1);
    WGMMA_FENCE();
    MULTIPLY_STEP(sum, a + A_ELEMENTS / 8, b, "0");
    MULTIPLY_STEP(sum, a, b + B_ELEMENTS / 8, "1");
    WGMMA_FINISH();
    OCL_UNROLL
    for (int i = 0; i < TILE_N / 2; ++i) {
      FENCE_REGISTER(sum[i]);
      sum[i] *= 0x1p-11f;
    }
    WGMMA_FENCE();
    MULTIPLY_STEP(sum, a, b, "1");
    WGMMA_FINISH();
    __local const float* lines = scales + step % STAGES * SCALES;
    const float upper = lines[row], lower = lines[row + 8];
    OCL_UNROLL
    for (int i = 0; i < TILE_N / 2; i += 4) {
      const float2 columns = *(__local const float2*)(lines + TILE_M + 2 * i + 2 * (lane & 3));
      const float factors[4] = {upper * columns.x, upper * columns.y, lower * columns.x, lower * columns.y};
      OCL_UNROLL
      for (int j = 0; j < 4; ++j) {
        FENCE_REGISTER(sum[i + j]);
        total[i + j] = fma(sum[i + j], factors[j], total[i + j]);
      }
    }
    consumer_release(line, step);
  }
}
#else
ALWAYS_INLINE void multiply_packed(float* total, const Pipeline line, __local const float* scales, const int begin,
                                   const int end) {
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) total[i] = 0.0f;
  for (int step = begin; step < end; ++step) {
    __local const OPERAND_T* at = consumer_wait(line, step);
    const ulong a = descriptor(at + (get_local_id(0) >> 7) * BLOCK_ELEMENTS, 1), b = descriptor(at + A_STAGE, 1);
    WGMMA_FENCE();
    MULTIPLY_ROWS(total, a, b);
    MULTIPLY_ROWS(total, a + 2, b + 2);
    MULTIPLY_ROWS(total, a + 4, b + 4);
    MULTIPLY_ROWS(total, a + 6, b + 6);
    WGMMA_COMMIT();
    WGMMA_WAIT("1");
    if (step > begin) consumer_release(line, step - 1);
  }
  WGMMA_WAIT("0");
  consumer_release(line, end - 1);
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) FENCE_REGISTER(total[i]);
}
#endif

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if PAIRS
  __local float scales[STAGES * SCALES] __attribute__((aligned(128)));
#else
  __local float* scales = 0;
#endif
  LOCAL_ROWS(rows);
  PIPELINE(line);
  const int m_tiles = (M + TILE_M - 1) / TILE_M, n_tiles = (N + TILE_N - 1) / TILE_N;
  const int steps = (K + TILE_K - 1) / TILE_K;
  int begin = 0;  // first step of the tile, counted over all tiles of the work-group
  if (get_local_id(0) >= CONSUMERS * 128) {
    if (get_local_id(0) != CONSUMERS * 128) return;
    const int a_panels = (M + 63) / 64, b_panels = (N + 63) / 64;
    a += a_offset;
    b += b_offset;
    FOR_TILES(g, TILES) {
      const int2 tile = TILE_OF(g);
      const int a_first = tile.x * (TILE_M / 64), b_first = tile.y * (TILE_N / 64);
      produce(line, scales, a + (BATCH_OF(g) * a_batch + (long)a_first * steps * STEP_FLOATS),
              b + (BATCH_OF(g) * b_batch + (long)b_first * steps * STEP_FLOATS), min(a_panels - a_first, TILE_M / 64),
              min(b_panels - b_first, TILE_N / 64), begin, steps);
      begin += steps;
    }
    return;
  }
  FOR_TILES(g, TILES) {
    const int2 tile = TILE_OF(g);
    const int batch = BATCH_OF(g);
    float total[TILE_N / 2];
    multiply_packed(total, line, scales, begin, begin + steps);
    begin += steps;
    STORE_PRODUCT(total, rows, tile, batch, M, N);
  }
}
