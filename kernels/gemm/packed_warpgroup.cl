// kernels/gemm/packed_warpgroup.cl: batched matrix product of fp32 on warpgroup tensor cores, C[b,m,n] = sum over k of A[b,m,k]
// * B[b,k,n]. Both operands are packed in blocks, as pack/group.cl writes them. The pipeline is in
// tensor_core/warpgroup.cl, the stores are in tensor_core/store.cl.
//
//   producer (one work-item)          a stage                                    consumer w: rows 64w .. 64w+63
//   copies blocks of 8 KB         ->  TILE_M/64 blocks of A, then those of B ->  read by the tensor cores; A of split
//   (fp32: high and low of B)         full[stage] counts bytes                   fp32 goes through registers
//
// With TF32 one running sum covers the whole depth, and the products of a step are issued before those of the previous
// step are complete. Operands of 16 bits are read in place (gemm/warpgroup.cl), which is as fast.
//
// Arguments: a, a_offset, b, b_offset: [batch][panels][steps][blocks], offsets in floats, multiples of 4; int M, N, K;
//   long a_batch, b_batch: floats from one matrix to the next, 0 if there is only one; epilogue.
// Grid: global (any number of work-groups up to ceil(M/TILE_M) * ceil(N/TILE_N), times GROUP_SIZE, 1, batch), local
//   (GROUP_SIZE, 1, 1).
// Epilogue macros: STORE(acc, b, m, n). Store dimension n, VW 2 or as many elements as 16 bytes have. Needs PACKED 1.
#ifndef KERNEL_NAME
#define KERNEL_NAME gemm_packed_warpgroup
#endif

// Copies the blocks of a tile: `a_panels` panels of A and `b_panels` of B, each of `steps` steps. begin: number of the
// tile's first step, counted over all tiles of the work-group.
ALWAYS_INLINE void produce(const Pipeline line, __global const float* a, __global const float* b, const int a_panels,
                           const int b_panels, const int begin, const int steps) {
  for (int step = 0; step < steps; ++step) {
    __local OPERAND_T* to = producer_acquire(line, begin + step);
    const uint full = line.full + 8 * ((begin + step) % STAGES);
    barrier_expect(full, (a_panels + PIECES * b_panels) * BLOCK_BYTES);
    copy_blocks(to, a + (long)step * BLOCK, a_panels, TILE_M / 64, (long)steps * BLOCK, 1, full);
    copy_blocks(to + A_ELEMENTS, b + (long)step * (PIECES * BLOCK), b_panels, TILE_N / 64,
                (long)steps * (PIECES * BLOCK), PIECES, full);
  }
}

// Writes to total the product over steps begin .. end - 1, with the layout of consume() in tensor_core/warpgroup.cl.
#if TERMS == 3
ALWAYS_INLINE void multiply_packed(float* total, const Pipeline line, const int begin, const int end) {
  float sum[TILE_N / 2];
  uint high[16], low[16];
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) total[i] = sum[i] = 0.0f;
  for (int step = begin; step < end; ++step) {
    __local const float* at = consumer_wait(line, step);
    __local const float4* quads = (__local const float4*)at + (get_local_id(0) >> 5) * 128 + (get_local_id(0) & 31);
    OCL_UNROLL
    for (int k8 = 0; k8 < 4; ++k8) {
      const float4 quad = quads[k8 * 32];
      const float x[4] = {quad.x, quad.y, quad.z, quad.w};
      split_fragment(high, low, k8, x);
    }
    const ulong b = descriptor(at + A_ELEMENTS, 1);
    WGMMA_FENCE();
    MULTIPLY_SPLIT(sum, high, low, b);
    WGMMA_FINISH();
    consumer_release(line, step);
    OCL_UNROLL
    for (int i = 0; i < TILE_N / 2; ++i) {
      FENCE_REGISTER(sum[i]);
      total[i] += sum[i];
    }
  }
}
#else
ALWAYS_INLINE void multiply_packed(float* total, const Pipeline line, const int begin, const int end) {
  OCL_UNROLL
  for (int i = 0; i < TILE_N / 2; ++i) total[i] = 0.0f;
  for (int step = begin; step < end; ++step) {
    __local const OPERAND_T* at = consumer_wait(line, step);
    // A descriptor advances by 2 (32 bytes) for a quarter of the step's depth.
    const ulong a = descriptor(at + (get_local_id(0) >> 7) * BLOCK_ELEMENTS, 1), b = descriptor(at + A_ELEMENTS, 1);
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

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(
    __global const float* a, const ulong a_offset, __global const float* b, const ulong b_offset, const int M,
    const int N, const int K, const long a_batch, const long b_batch EPILOGUE_PARAMS) {
  LOCAL_ROWS(rows);
  PIPELINE(line);
  const int m_tiles = (M + TILE_M - 1) / TILE_M, n_tiles = (N + TILE_N - 1) / TILE_N, batch = get_group_id(2);
  const int steps = (K + TILE_K - 1) / TILE_K;
  int begin = 0;  // first step of the tile, counted over all tiles of the work-group
  if (get_local_id(0) >= CONSUMERS * 128) {
    if (get_local_id(0) != CONSUMERS * 128) return;
    const int a_panels = (M + 63) / 64, b_panels = (N + 63) / 64;
    a += a_offset + batch * a_batch;
    b += b_offset + batch * b_batch;
    FOR_TILES(g, m_tiles * n_tiles) {
      const int2 tile = tile_at(g, m_tiles, n_tiles);
      const int a_first = tile.x * (TILE_M / 64), b_first = tile.y * (TILE_N / 64);
      produce(line, a + (long)a_first * steps * BLOCK, b + (long)b_first * steps * (PIECES * BLOCK),
              min(a_panels - a_first, TILE_M / 64), min(b_panels - b_first, TILE_N / 64), begin, steps);
      begin += steps;
    }
    return;
  }
  FOR_TILES(g, m_tiles * n_tiles) {
    const int2 tile = tile_at(g, m_tiles, n_tiles);
    float total[TILE_N / 2];
    multiply_packed(total, line, begin, begin + steps);
    begin += steps;
    STORE_PRODUCT(total, rows, tile, batch, M, N);
  }
}
