// kernels/gemm/group.cl: batched matrix product on GPUs, C[b,m,n] = sum over k of A[b,m,k] * B[b,k,n], accumulated in
// fp32.
//
// One work-group computes a TILE_M x TILE_N tile of C, one work-item ITEM_M x ITEM_N of it as blocks of 4x4
// (tile_multiply of base/types.cl). Each step of TILE_K loads the next part of both operands into registers, multiplies
// the current part from local memory, then stores the next part into the other local buffer. There is one barrier a
// step.
//
//                  TILE_N            local memory, twice:  a_tile [TILE_K][TILE_M+4], b_tile [TILE_K][TILE_N+4]
//             +-----+-----+
//      B      | k   |     | TILE_K
//             +-----+-----+          work-item (x, y) has columns 4x..4x+3 and TILE_N/2 + 4x.. ,
//  +---+      +-----+-----+          rows 4y..4y+3 and TILE_M/2 + 4y..
//  | k |      |4x4  |4x4  |
//  |   |      |     |     | TILE_M
//  +---+      +-----+-----+
//  |   |      |4x4  |4x4  |
//  +---+      +-----+-----+
//    A           C
//
// Strides are in elements: A[b,m,k] is at a_offset + b/inner*a_outer + b%inner*a_inner +
//   m*a_row + k*a_col, B[b,k,n] at b_offset + b/inner*b_outer + b%inner*b_inner + k*b_row + n*b_col. inner: extent of
//   the inner batch dimension, such as heads; 1 if the batch is one dimension. Any strides work, and 0 broadcasts.
//   A_K_MAJOR and B_K_MAJOR choose the loads; a wrong value is only slow. A wrong *_VEC4 gives wrong results.
// Grid: global (ceil(M/TILE_M) * ceil(N/TILE_N) * GROUP_SIZE, 1, batch), local (GROUP_SIZE, 1, 1).
// Epilogue macros: STORE(acc, b, m, n). Store dimension n, VW = 4. For a split along K the slices are batches, whose
//   outer strides are K/splits along k.
// Macros of a launch: TILE_M (rows of C per work-group, a multiple of 4 * ITEM_M), TILE_N (columns of C per
//   work-group), TILE_K (depth of one step, 8 or 16), SUM_STEPS (steps after which the running sum is added to the
//   total; 0: one running sum), ITEM_M (rows of C per work-item, 4 or 8), ITEM_N (columns of C per work-item, 4 or 8),
//   A_K_MAJOR (1: k is the contiguous dimension of A, 0: m is), B_K_MAJOR (1: k is the contiguous dimension of B, 0: n
//   is), A_VEC4 (1: the contiguous dimension of A has stride 1, and its extent and the other strides are multiples of
//   4), B_VEC4 (the same for B).
#if SUM_STEPS
#define SUM_OF(i) (total[i] + acc[i])
#else
#define SUM_OF(i) acc[i]
#endif
#define ACROSS (TILE_N / ITEM_N)  // work-items along the columns
#define DOWN (TILE_M / ITEM_M)  // work-items along the rows
#define GROUP_SIZE (ACROSS * DOWN)  // work-items of a work-group, 64..256

// a: [batch, M, K] by strides; b: [batch, K, N] by strides
__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local float4 a_tile[2][TILE_K * (TILE_M + TILE_PAD) / 4];
  __local float4 b_tile[2][TILE_K * (TILE_N + TILE_PAD) / 4];
  const int lane = get_local_id(0);
  const int2 item = tile_item(lane, ACROSS, DOWN);
  const int n_tiles = (N + TILE_N - 1) / TILE_N;
  const int m0 = (int)get_group_id(0) / n_tiles * TILE_M;  // neighbouring work-groups share rows of A
  const int n0 = (int)get_group_id(0) % n_tiles * TILE_N;
  const int batch = get_group_id(2);
  // The literal 1 of a contiguous stride lets the compiler simplify addresses.
  const long a_width = A_VEC4 && !A_K_MAJOR ? 1 : a_row, a_depth = A_VEC4 && A_K_MAJOR ? 1 : a_col;
  const long b_width = B_VEC4 && !B_K_MAJOR ? 1 : b_col, b_depth = B_VEC4 && B_K_MAJOR ? 1 : b_row;
  a += a_offset + batch / inner * a_outer + batch % inner * a_inner + m0 * a_width;
  b += b_offset + batch / inner * b_outer + batch % inner * b_inner + n0 * b_width;

  float4 acc[ITEM_M * ITEM_N / 4];
  OCL_UNROLL
  for (int i = 0; i < ITEM_M * ITEM_N / 4; ++i) acc[i] = (float4)(0.0f);
#if SUM_STEPS
  float4 total[ITEM_M * ITEM_N / 4];
  int summed = 0;
  OCL_UNROLL
  for (int i = 0; i < ITEM_M * ITEM_N / 4; ++i) total[i] = (float4)(0.0f);
#endif
  float4 a_held[(TILE_M * TILE_K / 4 + GROUP_SIZE - 1) / GROUP_SIZE],
      b_held[(TILE_N * TILE_K / 4 + GROUP_SIZE - 1) / GROUP_SIZE];
  tile_fetch(a_held, a, a_width, a_depth, M - m0, K, lane, GROUP_SIZE, TILE_M, TILE_K, A_K_MAJOR, A_VEC4,
             ALIGNED(a_offset));
  tile_fetch(b_held, b, b_width, b_depth, N - n0, K, lane, GROUP_SIZE, TILE_N, TILE_K, B_K_MAJOR, B_VEC4,
             ALIGNED(b_offset));
  tile_keep((__local float*)a_tile[0], a_held, lane, GROUP_SIZE, TILE_M, TILE_K, A_K_MAJOR, A_VEC4);
  tile_keep((__local float*)b_tile[0], b_held, lane, GROUP_SIZE, TILE_N, TILE_K, B_K_MAJOR, B_VEC4);
  barrier(CLK_LOCAL_MEM_FENCE);  // the first step of both operands is in buffer 0
  int now = 0;
  for (int k = 0; k < K; k += TILE_K) {
    const int left = K - k - TILE_K;
    if (left > 0) {
      a += TILE_K * a_depth;
      b += TILE_K * b_depth;
      tile_fetch(a_held, a, a_width, a_depth, M - m0, left, lane, GROUP_SIZE, TILE_M, TILE_K, A_K_MAJOR, A_VEC4,
                 ALIGNED(a_offset));
      tile_fetch(b_held, b, b_width, b_depth, N - n0, left, lane, GROUP_SIZE, TILE_N, TILE_K, B_K_MAJOR, B_VEC4,
                 ALIGNED(b_offset));
    }
    tile_multiply(acc, (__local const float*)a_tile[now], (__local const float*)b_tile[now], item, ACROSS, DOWN, TILE_K,
                  ITEM_M, ITEM_N);
#if SUM_STEPS
    if (++summed % SUM_STEPS == 0) tile_flush(total, acc, ITEM_M * ITEM_N / 4);
#endif
    now ^= 1;
    if (left > 0) {
      tile_keep((__local float*)a_tile[now], a_held, lane, GROUP_SIZE, TILE_M, TILE_K, A_K_MAJOR, A_VEC4);
      tile_keep((__local float*)b_tile[now], b_held, lane, GROUP_SIZE, TILE_N, TILE_K, B_K_MAJOR, B_VEC4);
    }
    // the next step is complete, and the current one's buffer is free, because all have read it
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  OCL_UNROLL_ROWS
  for (int i = 0; i < ITEM_M; ++i) {
    const int m = m0 + (i / 4 * DOWN + item.y) * 4 + i % 4;
    OCL_UNROLL
    for (int j = 0; j < ITEM_N / 4; ++j) {
      const int n = n0 + (j * ACROSS + item.x) * 4;
      const float4 value = SUM_OF(ROW_NOW(i) * (ITEM_N / 4) + j);
      if (m < M) {
        if (n + 3 < N)
          STOREV(value, batch, m, n);
        else
          for (int l = 0; l < N - n; ++l) STORE(lane_of(value, l), batch, m, n + l);
      }
    }
    tile_next_row(acc, ITEM_N / 4, ITEM_M * ITEM_N / 4);
#if SUM_STEPS
    tile_next_row(total, ITEM_N / 4, ITEM_M * ITEM_N / 4);
#endif
  }
}
