// kernels/tensor_core/warp.cl: the multiply loop of the warp kernels: instructions of a warp, staging of both operands.
// Comes after tensor_core/operands.cl.
//
// A work-group computes a TILE_M x TILE_N tile of C in fp32. Each of its warps computes WARP_M x WARP_N of the tile, by
// instructions that each compute 16 x 8 sums:
//
//                    TILE_N           local memory, STAGES times, a step's depth of 128 bytes (TILE_K elements) each:
//                +------+------+        a, b with contiguous depth:   [width][TILE_K]     width: TILE_M or TILE_N
//                |      |      |        with another order in memory: [TILE_K][width]
//       WARP_M   |warp 0|warp 1|      All work-items copy the step STAGES - 1 ahead (cp.async) while their warps
//                |      |      |      multiply; one barrier per step.
//        TILE_M  +------+------+
//                |      |      |      Of 16 x 8 sums of C, lane l holds columns 2 * (l % 4) and the next of rows l / 4
//                |      |      |      and l / 4 + 8. Of 16 rows of A, each two chunks of 16 bytes deep, lane l holds
//                |warp 2|warp 3|      bytes 4 * (l % 4) .. + 3 of both chunks of rows l / 4 and l / 4 + 8. Of 8 columns
//                |      |      |      of B it holds the same bytes of column l / 4.
//                +------+------+
//                 WARP_N
//
// Tensor cores multiply TF32 (10 bits of mantissa). With TERMS 3 a float is split into high + low, both TF32. The sum
// low*high' + high*low' + high*high' then has the error of fp32 or less. Tensor cores truncate their running sums. So
// after every 8 elements of the depth a new sum begins, which is added to the total in fp32 registers. Operands that
// are not finite give NaN. With TERMS 1 (TF32 allowed) there is only the high part. TF32 and operands of 16 bits
// (IN_BF16, IN_HALF) have one running sum over the whole depth: truncation loses much less than rounding the operands
// or the result does.
// Macros of a launch: TILE_M (rows of C per work-group: a multiple of WARP_M, 64 or more), TILE_N (columns of C per
//   work-group: a multiple of WARP_N, 64 or more), WARP_M (rows of C per warp: a multiple of 16), WARP_N (columns of C
//   per warp: a multiple of 32 (tensor_core/store.cl: of 4 VW)), STAGES (buffers in local memory: at most 96 KB).
#define WARPS_N (TILE_N / WARP_N)  // warps along the columns
#define GROUP_SIZE (TILE_M / WARP_M * WARPS_N * 32)
#define A_ELEMENTS (TILE_M * TILE_K)
#define B_ELEMENTS (TILE_N * TILE_K)
#define STAGE_ELEMENTS (A_ELEMENTS + B_ELEMENTS)
#define SUMS (WARP_M * WARP_N / 32)  // sums of C in the registers of a lane

// ---- instructions ----
// Reads four matrices of 8 rows of 16 bytes. Lane l passes the address of row l % 8 of matrix l / 8. A row has four
// words of 4 bytes; lane l receives word l % 4 of row l / 4 of matrix i in x[i].
ALWAYS_INLINE void read_rows(uint* x, const uint row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}
// Reads four matrices of 8 x 8 elements of 16 bits, transposed. Lane l passes the address of row l % 8 of matrix l / 8.
// It receives in x[i] rows 2 * (l % 4) and the next of column l / 4 of matrix i.
ALWAYS_INLINE void read_columns(uint* x, const uint row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}
#if NARROW_MMA
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
#elif defined(IN_BF16)
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#elif defined(IN_HALF)
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#else
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
#endif
// d += a * b. d: 16 x 8 sums in the registers of a warp, a: 16 rows x two chunks, b: two chunks x 8 columns.
ALWAYS_INLINE void multiply(float* d, const uint* a, const uint* b) {
#if NARROW_MMA
  OCL_UNROLL
  for (int i = 0; i < 2; ++i)  // a chunk at a time
    asm volatile(MMA "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#else
  asm volatile(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
#if TERMS == 3
// d = a * b.
ALWAYS_INLINE void multiply_first(float* d, const uint* a, const uint* b) {
  asm volatile(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}
#endif

// ---- where an element lies in a stage ----
// Returns the offset of a chunk in a stage, in elements, for an operand whose width (`width` elements) is contiguous in
// memory. (row_chunk of tensor_core/operands.cl is for contiguous depth.) A chunk's position in its row depends on
// `depth`, so that the chunks of 8 (16 bits) or 4 (32 bits) depths that are read at once are in different banks.
ALWAYS_INLINE int column_chunk(const int depth, const int chunk, const int width) {
  return depth * width + (chunk ^ (HALVES ? depth & 7 : (depth & 3) << 1)) * CHUNK;
}

// ---- staging ----
// Copies CHUNK elements of `from`, `stride` elements apart, to `to`. The first `valid` elements are inside the matrix;
// zeros are written for the others. direct: 1 if `stride` is 1 and `from` lies at a multiple of 16 bytes.
ALWAYS_INLINE void stage_chunk(__local OPERAND_T* to, __global const OPERAND_T* from, const long stride,
                               const int valid, const int direct) {
  if (NARROW_MMA && direct && valid >= CHUNK) {
    *(__local uint4*)to = *(__global const uint4*)from;
  } else if (!NARROW_MMA && direct) {
    copy_16(local_address(to), from, (int)sizeof(OPERAND_T) * clamp(valid, 0, CHUNK));
  } else {
#if HALVES
    ushort x[CHUNK];
    OCL_UNROLL
    for (int j = 0; j < CHUNK; ++j) x[j] = j < valid ? from[j * stride] : 0;
    *(__local ushort8*)to = (ushort8)(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
#else
    OCL_UNROLL
    for (int j = 0; j < CHUNK; ++j)
      copy_4(local_address(to) + 4 * j, j < valid ? from + j * stride : from, j < valid ? 4 : 0);
#endif
  }
}
// The part of an operand that one work-item copies in each step: width / (GROUP_SIZE / 8) chunks, all at the same
// position along the contiguous dimension.
typedef struct {
  __global const OPERAND_T *matrix, *from;  // the operand; the first chunk of the next step
  // strides in elements: within a chunk, from chunk to chunk, from step to step
  long along, chunk_stride, next;
  int width_left, depth_left;  // elements of the matrix that remain from chunk `from` on, in each direction
} OperandShare;
// Returns this work-item's share of an operand. Its depth is the direction of K, its width the direction of M or N.
// along_width, along_depth: strides in elements. left: number of elements of the tile's width that lie inside the
// matrix. rows: 1 if the operand is contiguous along its depth.
ALWAYS_INLINE OperandShare share_of(__global const OPERAND_T* matrix, const long along_width, const long along_depth,
                                    const int left, const int K, const int width, const int rows) {
  const int p = get_local_id(0), across = rows ? 8 : width / CHUNK;
  const int w = rows ? p >> 3 : p % across * CHUNK, depth = rows ? (p & 7) * CHUNK : p / across;
  const OperandShare share = {matrix,
                              matrix + w * along_width + depth * along_depth,
                              rows ? along_depth : along_width,
                              GROUP_SIZE / across * (rows ? along_width : along_depth),
                              TILE_K * along_depth,
                              left - w,
                              K - depth};
  return share;
}
// Copies the work-item's share of the next step into a stage. rows: as for share_of; direct: as for stage_chunk.
ALWAYS_INLINE void stage(__local OPERAND_T* to, OperandShare* share, const int width, const int rows,
                         const int direct) {
  const int p = get_local_id(0), across = rows ? 8 : width / CHUNK, line_step = GROUP_SIZE / across, first = p / across,
            chunk = p % across;
  OCL_UNROLL
  for (int i = 0; i < width * 8 / GROUP_SIZE; ++i) {
    const int line = first + i * line_step;
    const int inside = i * line_step < (rows ? share->width_left : share->depth_left);
    const int valid = inside ? rows ? share->depth_left : share->width_left : 0;
    stage_chunk(to + (rows ? row_chunk(line, chunk) : column_chunk(line, chunk, width)),
                valid > 0 ? share->from + i * share->chunk_stride : share->matrix, share->along, valid, direct);
  }
  share->from += share->next;
  share->depth_left -= TILE_K;
}

// ---- multiply loop ----
// read_a writes to x this lane's part of A for chunks 2 k and 2 k + 1 of a step's depth and the 16 rows from `row` on.
// read_b writes to x the lane's part of B for these chunks and the 16 columns (two products) from `column` on. rows: 1
// if the operand is contiguous along its depth.
ALWAYS_INLINE void read_a(uint* x, __local const OPERAND_T* a, const int row, const int k, const int rows) {
  const int lane = get_local_id(0) & 31;
  if (rows) {
    read_rows(x, local_address(a + row_chunk(row + (lane & 15), 2 * k + (lane >> 4))));
  } else if (HALVES) {
    read_columns(x, local_address(a + column_chunk(2 * k * CHUNK + (lane & 7) + (lane >> 4) * 8,
                                                   row / CHUNK + ((lane >> 3) & 1), TILE_M)));
  } else {
    const int m = row + (lane >> 2), depth = 2 * k * CHUNK + (lane & 3);
    __local const OPERAND_T *upper = a + column_chunk(depth, m / CHUNK, TILE_M) + m % CHUNK,
                            *lower = a + column_chunk(depth, m / CHUNK + 2, TILE_M) + m % CHUNK;
    x[0] = as_uint((float)upper[0]);
    x[1] = as_uint((float)lower[0]);
    x[2] = as_uint((float)upper[CHUNK * TILE_M]);
    x[3] = as_uint((float)lower[CHUNK * TILE_M]);
  }
}
ALWAYS_INLINE void read_b(uint* x, __local const OPERAND_T* b, const int column, const int k, const int rows) {
  const int lane = get_local_id(0) & 31;
  if (rows) {
    read_rows(x, local_address(b + row_chunk(column + (lane & 7) + (lane >> 4) * 8, 2 * k + ((lane >> 3) & 1))));
  } else if (HALVES) {
    read_columns(x, local_address(b + column_chunk(2 * k * CHUNK + (lane & 15), column / CHUNK + (lane >> 4), TILE_N)));
  } else {
    const int n = column + (lane >> 2), depth = 2 * k * CHUNK + (lane & 3);
    __local const OPERAND_T *left = b + column_chunk(depth, n / CHUNK, TILE_N) + n % CHUNK,
                            *right = b + column_chunk(depth, n / CHUNK + 2, TILE_N) + n % CHUNK;
    x[0] = as_uint((float)left[0]);
    x[1] = as_uint((float)left[CHUNK * TILE_N]);
    x[2] = as_uint((float)right[0]);
    x[3] = as_uint((float)right[CHUNK * TILE_N]);
  }
}
// Rounds four floats to the nearest TF32 in place, ties away from zero. Tensor cores ignore the 13 lowest bits, so they
// are not cleared. With TERMS 3 it writes the rounding errors to `low`, rounded in the same way. 16-bit operands stay
// unchanged. Integer instructions are faster than the conversion instruction.
ALWAYS_INLINE void round_to_tf32(uint* high, uint* low) {
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) {
#if TERMS == 3
    const float x = as_float(high[i]);
    high[i] = (high[i] + 0x1000u) & 0xFFFFE000u;
    low[i] = as_uint(x - as_float(high[i])) + 0x1000u;
#elif !HALVES
    high[i] += 0x1000u;
#endif
  }
}

#if TERMS == 3
// an unrolled loop would hold the operands of all its iterations at once, which do not fit in registers
#define UNROLL_DEPTH OCL_NO_UNROLL
#else
#define UNROLL_DEPTH OCL_UNROLL
#endif

// total += a * b for 16 rows of a and `columns` columns of b. Both operands are two chunks of 16 bytes deep. a_low,
// b_low: the low pieces, used only with TERMS 3.
ALWAYS_INLINE void add_products(float* total, const uint* a_high, const uint* a_low, const uint* b_high,
                                const uint* b_low, const int columns) {
#if TERMS == 3
  // The small products come first, because each addition truncates at the size of the sum so far.
  float sum[WARP_N / 2];
  OCL_UNROLL
  for (int j = 0; j < columns / 8; ++j) multiply_first(sum + 4 * j, a_low, b_high + 2 * j);
  OCL_UNROLL
  for (int j = 0; j < columns / 8; ++j) multiply(sum + 4 * j, a_high, b_low + 2 * j);
  OCL_UNROLL
  for (int j = 0; j < columns / 8; ++j) multiply(sum + 4 * j, a_high, b_high + 2 * j);
  OCL_UNROLL
  for (int j = 0; j < columns / 2; ++j) total[j] += sum[j];
#else
  OCL_UNROLL
  for (int j = 0; j < columns / 8; ++j) multiply(total + 4 * j, a_high, b_high + 2 * j);
#endif
}

// Adds the product a * b of one stage to total. total[(i * WARP_N / 8 + j) * 4 ..] are the lane's four sums of the
// warp's rows 16 i .. 16 i + 15 and columns 8 j .. 8 j + 7. a_rows, b_rows: 1 if the operand is contiguous along its
// depth.
ALWAYS_INLINE void multiply_step(float* total, __local const OPERAND_T* a, const int a_rows, const int b_rows) {
  const int warp = get_local_id(0) >> 5, row = warp / WARPS_N * WARP_M, column = warp % WARPS_N * WARP_N;
  __local const OPERAND_T* b = a + A_ELEMENTS;
  UNROLL_DEPTH
  for (int k = 0; k < 4; ++k) {
    uint b_high[WARP_N / 4], b_low[WARP_N / 4];
    OCL_UNROLL
    for (int j = 0; j < WARP_N / 16; ++j) {
      read_b(b_high + 4 * j, b, column + 16 * j, k, b_rows);
      round_to_tf32(b_high + 4 * j, b_low + 4 * j);
    }
    OCL_UNROLL
    for (int i = 0; i < WARP_M / 16; ++i) {
      uint a_high[4], a_low[4];
      read_a(a_high, a, row + 16 * i, k, a_rows);
      round_to_tf32(a_high, a_low);
      add_products(total + i * (WARP_N / 2), a_high, a_low, b_high, b_low, WARP_N);
    }
  }
}

#define LOCAL_STAGES(name) __local OPERAND_T name[STAGES * STAGE_ELEMENTS] __attribute__((aligned(128)))

// Writes to total the product a * b over `steps` steps. STAGE(to) copies this work-item's share of the next step into a
// stage.
#define MULTIPLY_STEPS(total, stages, steps, a_rows, b_rows, STAGE)                                                \
  {                                                                                                                \
    OCL_UNROLL                                                                                                     \
    for (int sum_of = 0; sum_of < SUMS; ++sum_of) total[sum_of] = 0.0f;                                            \
    __local OPERAND_T* next = stages;                                                                              \
    OCL_UNROLL                                                                                                     \
    for (int ahead = 0; ahead < STAGES - 1; ++ahead, next += STAGE_ELEMENTS) {                                     \
      if (ahead < steps) STAGE(next);                                                                              \
      commit_copies(); /* each step has a cp.async group, even if empty: WAIT_COPIES counts groups */              \
    }                                                                                                              \
    int now = 0; /* the stage that is read; `next` is the one before it, which all have read */                    \
    for (int step = 0; step < steps; ++step) {                                                                     \
      WAIT_COPIES(STAGES - 2);                                                                                     \
      barrier(CLK_LOCAL_MEM_FENCE); /* this step's copies are visible to all, and all have read the step before */ \
      if (step + STAGES - 1 < steps) STAGE(next);                                                                  \
      commit_copies();                                                                                             \
      multiply_step(total, stages + now * STAGE_ELEMENTS, a_rows, b_rows);                                         \
      next = stages + now * STAGE_ELEMENTS;                                                                        \
      now = now + 1 == STAGES ? 0 : now + 1;                                                                       \
    }                                                                                                              \
  }
