// kernels/gemm/warpgroup.cl: batched matrix product on warpgroup tensor cores, C[b,m,n] = sum over k of A[b,m,k] *
// B[b,k,n]. The pipeline is in tensor_core/warpgroup.cl, the stores are in tensor_core/store.cl.
//
// Strides are those of gemm/group.cl.
// Grid: global (any number of work-groups up to batches * ceil(M/TILE_M) * ceil(N/TILE_N), times GROUP_SIZE, 1, 1), local
//   (GROUP_SIZE, 1, 1). A work-group goes on with tiles of the next matrix. BATCHED 0: batches is 1.
// Epilogue macros: STORE(acc, b, m, n). Store dimension n, VW 2 or as many elements as 16 bytes have.
// BOXES 1 (16-bit operands, and a tile of which no two fit on a compute unit): one work-item copies both operands in
//   boxes, unless an operand does not begin at a multiple of 16 bytes. TURNS 1 (with BOXES): tensor_core/warpgroup.cl.

// The operands of a tile. a, b: their first elements. m_left, n_left: rows of A and columns of B that lie inside the
// matrix from there on. *_width, *_depth: strides along M or N, and along K.
typedef struct {
  __global const OPERAND_T *a, *b;
  int m_left, n_left, K;
  long a_width, a_depth, b_width, b_depth;
} Operands;

// Copies this producer's share of an operand of a step to `to`: `width` rows of A or columns of B, of which `left` are
// inside the matrix. k_major: 1 if the operand is contiguous along K; direct: as for stage_chunk.
ALWAYS_INLINE void stage(__local OPERAND_T* to, __global const OPERAND_T* from, const long along_width,
                         const long along_depth, const int left, const int K, const int step, const int width,
                         const int k_major, const int direct) {
  // `across` producers copy neighbouring chunks. Producers that are `across` apart copy from the next row (k_major) or
  // the next depth. Chunk number i of a producer lies i * apart rows or depths further on. If the width is contiguous,
  // the depths end after TILE_K, and the next chunks are those of the next block of columns.
  const int across = k_major || HALVES ? 8 : width / CHUNK, apart = PRODUCERS / across;
  const int p = get_local_id(0) - CONSUMERS * 128, chunk = p % across, row = p / across;
  if (direct && left >= width && (step + 1) * TILE_K <= K) {
    // No chunk needs a check: a copy costs two more instructions.
    const long along_row = k_major ? along_width : along_depth, next = apart * along_row;
    from += step * TILE_K * along_depth + row * along_row + chunk * CHUNK;
    OCL_UNROLL
    for (int i = 0; i < width * TILE_K / CHUNK / PRODUCERS; ++i, from += next) {
      const int block = k_major ? 0 : i * apart / TILE_K * across;
      if (i > 0 && !k_major && i * apart % TILE_K == 0) from -= TILE_K * along_depth;
      copy_whole_16(local_address(to + (k_major ? row_chunk(row + i * apart, chunk)
                                                : column_chunk(row + i * apart % TILE_K, block + chunk))),
                    from + block * CHUNK);
    }
    return;
  }
  OCL_UNROLL
  for (int i = 0; i < width * TILE_K / CHUNK / PRODUCERS; ++i) {
    const int column = k_major ? chunk : i * apart / TILE_K * across + chunk;
    const int m = k_major ? row + i * apart : column * CHUNK;
    const int depth = k_major ? chunk * CHUNK : row + i * apart % TILE_K, k = step * TILE_K + depth;
    const int valid = k_major ? m < left ? K - k : 0 : k < K ? left - m : 0;
    stage_chunk(to + (k_major ? row_chunk(m, chunk) : column_chunk(depth, column)),
                valid > 0 ? from + m * along_width + k * along_depth : from, k_major ? along_depth : along_width, valid,
                direct);
  }
}

#if BOXES
// Returns the map of an operand. `width` of its rows of A or columns of B, in boxes of `tile`. inner_stride, outer_stride: from
// one matrix of a batch to the next, 0 if they are one.
ALWAYS_INLINE ulong operand_map(__local ulong* map, const int number, __global const OPERAND_T* x, const int width,
                                const int depth, const int tile, const int k_major, const long stride, const int inner,
                                const int outer, const long inner_stride, const long outer_stride) {
  const int columns = k_major ? depth : width, rows = k_major ? width : depth, box_rows = k_major ? tile : TILE_K;
#if BATCHED
  return head_map(map, number, x, columns, rows, inner_stride == 0 ? 1 : inner, outer_stride == 0 ? 1 : outer, stride,
                  inner_stride == 0 ? CHUNK : inner_stride, outer_stride == 0 ? CHUNK : outer_stride, box_rows);
#else
  return tensor_map(map, number, x, columns, rows, stride, box_rows);
#endif
}
#endif
#if HALVES
ALWAYS_INLINE void produce(const Pipeline line, const Operands o, const int begin, const int steps, const int a_direct,
                           const int b_direct) {
  for (int step = 0; step < steps; ++step) {
    __local OPERAND_T* to = producer_acquire(line, begin + step);
    stage(to, o.a, o.a_width, o.a_depth, o.m_left, o.K, step, TILE_M, A_K_MAJOR, a_direct);
    stage(to + A_ELEMENTS, o.b, o.b_width, o.b_depth, o.n_left, o.K, step, TILE_N, B_K_MAJOR, b_direct);
    producer_commit(line, begin + step);
  }
}
#else
// Loads this producer's share of B of a step into registers. quads: 1 to load 16 bytes at once.
ALWAYS_INLINE void fetch(float4* held, const Operands o, const int step, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128, quad = p & 7, row = p >> 3;
  OCL_UNROLL
  for (int i = 0; i < B_CHUNKS; ++i) {
    const int n = B_K_MAJOR ? row + i * ROWS_APART : column_of(p),
              k = step * TILE_K + (B_K_MAJOR ? quad * 4 : depth_of(p, i / 4) + i % 4);
    const int valid = B_K_MAJOR ? n < o.n_left ? o.K - k : 0 : k < o.K ? o.n_left - n : 0;
    held[i] = fetch_quad(o.b + n * o.b_width + k * o.b_depth, B_K_MAJOR ? o.b_depth : o.b_width, valid, quads);
  }
}

// Copies this producer's share of a step to the stage: A from global memory, B from the registers `held`.
ALWAYS_INLINE void put(const Pipeline line, const float4* held, const Operands o, const int begin, const int step,
                       const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128, quad = p & 7, row = p >> 3;
  __local float* to = producer_acquire(line, begin + step);
  stage(to, o.a, o.a_width, o.a_depth, o.m_left, o.K, step, TILE_M, A_K_MAJOR, quads);
  if (B_K_MAJOR) {
    OCL_UNROLL
    for (int i = 0; i < B_CHUNKS; ++i) store_row_quad(to + A_ELEMENTS, row + i * ROWS_APART, quad, held[i]);
  } else {
    OCL_UNROLL
    for (int i = 0; i < B_BLOCKS; ++i)
      store_transposed_block(to + A_ELEMENTS, column_of(p), depth_of(p, i) / 4, held + 4 * i);
  }
  producer_commit(line, begin + step);
}

// Stages all steps of a tile. begin: number of its first step, counted over all tiles of the work-group. B is loaded
// two steps ahead, because the latency of memory is longer than a step.
ALWAYS_INLINE void produce(const Pipeline line, const Operands o, const int begin, const int steps, const int a_quads,
                           const int b_quads) {
  float4 even[B_CHUNKS], odd[B_CHUNKS];
  for (int step = 0; step < steps + 2; step += 2) {
    if (step >= 2) put(line, even, o, begin, step - 2, a_quads);
    if (step < steps) fetch(even, o, step, b_quads);
    if (step >= 2 && step - 1 < steps) put(line, odd, o, begin, step - 1, a_quads);
    if (step + 1 < steps) fetch(odd, o, step + 1, b_quads);
  }
}
#endif

// a: [batch, M, K] by strides; b: [batch, K, N] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  DECLARE_BOXES(CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset));
  LOCAL_ROWS(rows);
  PIPELINE_OF(line, boxes ? 1 : FULL_ARRIVALS);
  const int m_tiles = (M + TILE_M - 1) / TILE_M, n_tiles = (N + TILE_N - 1) / TILE_N;
  const int steps = (K + TILE_K - 1) / TILE_K;
  if (get_local_id(0) >= CONSUMERS * 128) {
    int begin = 0;  // first step of the tile, counted over all tiles of the work-group
    PRODUCERS_BEGIN();
    // The literal 1 of a contiguous stride lets the compiler simplify addresses.
    const long a_width = A_VEC4 && !A_K_MAJOR ? 1 : a_row, a_depth = A_VEC4 && A_K_MAJOR ? 1 : a_col;
    const long b_width = B_VEC4 && !B_K_MAJOR ? 1 : b_col, b_depth = B_VEC4 && B_K_MAJOR ? 1 : b_row;
    a += a_offset;
    b += b_offset;
#if BOXES
    if (boxes) {
      if (get_local_id(0) >= CONSUMERS * 128 + 32) return;
      const int outer = batches / inner;
      const ulong a_map = operand_map(map, 0, a, M, K, TILE_M, A_K_MAJOR, A_K_MAJOR ? a_row : a_col, inner, outer,
                                      a_inner, a_outer),
                  b_map = operand_map(map, 1, b, N, K, TILE_N, B_K_MAJOR, B_K_MAJOR ? b_col : b_row, inner, outer,
                                      b_inner, b_outer);
      if (get_local_id(0) != CONSUMERS * 128) return;
      FOR_TILES(g, TILES) {
        const int x = BATCH_OF(g) % inner, y = BATCH_OF(g) / inner;
        const int4 matrices = {a_inner == 0 ? 0 : x, a_outer == 0 ? 0 : y, b_inner == 0 ? 0 : x, b_outer == 0 ? 0 : y};
        stage_tile_boxes(line, begin, steps, TILE_OF(g), matrices, a_map, b_map, A_K_MAJOR, B_K_MAJOR);
        begin += steps;
      }
      return;
    }
#endif
    FOR_TILES(g, TILES) {
      const int2 tile = TILE_OF(g);
      const int m0 = tile.x * TILE_M, n0 = tile.y * TILE_N, x = BATCH_OF(g) % inner, y = BATCH_OF(g) / inner;
      const Operands o = {a + (y * a_outer + x * a_inner + m0 * a_width),
                          b + (y * b_outer + x * b_inner + n0 * b_width),
                          M - m0,
                          N - n0,
                          K,
                          a_width,
                          a_depth,
                          b_width,
                          b_depth};
      if (CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset))
        produce(line, o, begin, steps, A_VEC4, B_VEC4);
      else
        produce(line, o, begin, steps, 0, 0);
      begin += steps;
    }
#if HALVES
    producer_finish(line, begin);
#endif
    return;
  }
  CONSUMERS_BEGIN();
  int number = TURNS ? get_local_id(0) >> 7 : 0;  // of the tile, among those of the work-group
  for (int g; g = get_group_id(0) + number * get_num_groups(0), g < TILES; number += 1 + TURNS) {
    const int2 tile = TILE_OF(g);
    const int batch = BATCH_OF(g);
    float total[ROW_BLOCKS * SUMS_OF_BLOCK];
    if (TURNS) begin_turn(line, number);
    consume(total, line, number * steps, (number + 1) * steps, A_K_MAJOR, B_K_MAJOR);
    STORE_PRODUCT(total, rows, tile, batch, M, N);
  }
}
