// kernels/attention/group_tiles.cl: the tiles of attention/group.cl in local memory: products of them, sums across a row, and
// values of a work-item that wait there. Comes after attention/parameters.cl.
#ifndef TILE_R
#define TILE_R 64  // rows of a group: 64, 32 or 16
#endif
#ifndef TILE_C
#define TILE_C 64  // columns of a step: 32, 64, 128 or 256; at most GROUP_SIZE
#endif
#ifndef STEP
#define STEP 16  // depth staged at a time: 16, or 8 where local memory is small or registers are few
#endif
#ifndef FEW_REGISTERS
#define FEW_REGISTERS 0  // 1: a work-item has few: what it does not need at once waits in local memory
#endif
#define CHUNK TILE_C  // floats of an output row that are computed at a time
#define ACROSS (TILE_C / 4)
#define DOWN (TILE_R / 4)
#define GROUP_SIZE (ACROSS * DOWN)  // work-items, 32..256
#ifndef QUADS
#define QUADS 0  // 1: all sizes and strides of rows are multiples of 4 elements
#endif
#define Y_VSTORE(v, p) vstore4(v, 0, p)
#define CHUNKS(width) (((width) + CHUNK - 1) / CHUNK)

// The local memory of a work-group, and the work-item's position in the tiles.
typedef struct {
  __local float* a_tile;  // [STEP][TILE_R + TILE_PAD]
  __local float* b_tile;  // [STEP][TILE_C + TILE_PAD], also [STEP][CHUNK + TILE_PAD]
  __local float* p_tile;  // [TILE_C][TILE_R + TILE_PAD], also [ACROSS][TILE_R]
#if PASS
  __local float* statistics;  // [3][TILE_R or TILE_C]: see keep_statistics
#endif
  int lane;
  int2 item;
} GroupTiles;

// `at` for a part of a step. Compilers compute what depends on the work-item alone before the loop, such as forty
// addresses, and hold it. So with few registers the position depends on the head, and on the part (1 to 4): adds its
// sign, which is zero. (A macro, because Oclgrind cannot run inlined functions that return a struct.)
#if PASS
#define STATISTICS_OF(at) (at).statistics,
#else
#define STATISTICS_OF(at)
#endif
#if FEW_REGISTERS
#define AT_PART(at, head, part) AT_ITEM(at, (at).lane + ((head) >> (32 - (part))))
#define AT_ITEM(at, i) \
  ((GroupTiles){(at).a_tile, (at).b_tile, (at).p_tile, STATISTICS_OF(at) i, tile_item(i, ACROSS, DOWN)})
#else
#define AT_PART(at, head, part) (at)
#endif

// Writes t[i] = row 4*item.y + i of a, times rows 4*item.x + 0..3 of b. Rows outside the matrices count as zeros.
ALWAYS_INLINE void multiply_scores(float4* t, const GroupTiles at, __global const IN_T* a, const long a_row,
                                   const int rows_left, __global const IN_T* b, const long b_row,
                                   const int columns_left, const int depth, const int aligned) {
  OCL_UNROLL
  for (int i = 0; i < 4; ++i) t[i] = (float4)(0.0f);
  OCL_NO_UNROLL
  for (int d = 0; d < depth; d += STEP) {
    float4 a_held[(TILE_R * STEP / 4 + GROUP_SIZE - 1) / GROUP_SIZE],
        b_held[(TILE_C * STEP / 4 + GROUP_SIZE - 1) / GROUP_SIZE];
    tile_fetch(a_held, a + d, a_row, 1, rows_left, depth - d, at.lane, GROUP_SIZE, TILE_R, STEP, 1, QUADS, aligned);
    tile_fetch(b_held, b + d, b_row, 1, columns_left, depth - d, at.lane, GROUP_SIZE, TILE_C, STEP, 1, QUADS, aligned);
    barrier(CLK_LOCAL_MEM_FENCE);  // all have read the tiles of the previous depth
    tile_keep(at.a_tile, a_held, at.lane, GROUP_SIZE, TILE_R, STEP, 1, QUADS);
    tile_keep(at.b_tile, b_held, at.lane, GROUP_SIZE, TILE_C, STEP, 1, QUADS);
    barrier(CLK_LOCAL_MEM_FENCE);  // both tiles are complete
    tile_multiply(t, at.a_tile, at.b_tile, at.item, ACROSS, DOWN, STEP, 4, 4);
  }
}

// Stores the work-item's 4x4 scores (or p, or ds) t in p_tile, transposed.
ALWAYS_INLINE void keep_scores(const GroupTiles at, const float4* t) {
  __local float* to = at.p_tile + 4 * at.item.x * (TILE_R + TILE_PAD) + 4 * at.item.y;
  const int row = TILE_R + TILE_PAD;
  *(__local float4*)to = (float4)(t[0].x, t[1].x, t[2].x, t[3].x);
  *(__local float4*)(to + row) = (float4)(t[0].y, t[1].y, t[2].y, t[3].y);
  *(__local float4*)(to + 2 * row) = (float4)(t[0].z, t[1].z, t[2].z, t[3].z);
  *(__local float4*)(to + 3 * row) = (float4)(t[0].w, t[1].w, t[2].w, t[3].w);
}

// Returns row i of what keep_scores has stored for the work-item.
ALWAYS_INLINE float4 kept_row(const GroupTiles at, const int i) {
  __local const float* from = at.p_tile + 4 * at.item.x * (TILE_R + TILE_PAD) + 4 * at.item.y + i;
  const int row = TILE_R + TILE_PAD;
  return (float4)(from[0], from[row], from[2 * row], from[3 * row]);
}

// Writes out = rescale * out + p_tile^T w, for rows 4*item.y + 0..3 and floats c*CHUNK + 4*item.x + 0..3 of each chunk
// c. `count` rows of w are inside the matrix. Each step is summed from zero and then added, which keeps the rounding
// errors of long sums small.
ALWAYS_INLINE void add_rows(float4* out, const float4 rescale, const GroupTiles at, __global const IN_T* w,
                            const long w_row, const int count, const int width, const int aligned) {
  OCL_UNROLL
  for (int c = 0; c < CHUNKS(width); ++c) {
    float4 acc[4];
    OCL_UNROLL
    for (int i = 0; i < 4; ++i) acc[i] = (float4)(0.0f);
    OCL_NO_UNROLL
    for (int k = 0; k < TILE_C; k += STEP) {
      float4 held[(CHUNK * STEP / 4 + GROUP_SIZE - 1) / GROUP_SIZE];
      tile_fetch(held, w + k * w_row + c * CHUNK, 1, w_row, width - c * CHUNK, count - k, at.lane, GROUP_SIZE, CHUNK,
                 STEP, 0, QUADS, aligned);
      barrier(CLK_LOCAL_MEM_FENCE);  // all have read the previous b_tile, and p_tile is complete
      tile_keep(at.b_tile, held, at.lane, GROUP_SIZE, CHUNK, STEP, 0, QUADS);
      barrier(CLK_LOCAL_MEM_FENCE);  // b_tile is complete
      tile_multiply(acc, at.p_tile + k * (TILE_R + TILE_PAD), at.b_tile, at.item, ACROSS, DOWN, STEP, 4, 4);
    }
    out[c * 4] = fma((float4)(rescale.x), out[c * 4], acc[0]);
    out[c * 4 + 1] = fma((float4)(rescale.y), out[c * 4 + 1], acc[1]);
    out[c * 4 + 2] = fma((float4)(rescale.z), out[c * 4 + 2], acc[2]);
    out[c * 4 + 3] = fma((float4)(rescale.w), out[c * 4 + 3], acc[3]);
#if FEW_REGISTERS
    // A compiler may move these sums to the end of the step, and hold acc until then. A use keeps them here. It never
    // happens: count is positive.
    if (count <= 0) *(__local float4*)at.b_tile = out[c * 4] + out[c * 4 + 1] + out[c * 4 + 2] + out[c * 4 + 3];
#endif
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // everyone has read p_tile and b_tile
}

// Returns the maximum (is_max 1) or the sum (is_max 0) of each of the work-item's four rows, over all work-items of the
// row. Overwrites p_tile.
ALWAYS_INLINE float4 across_row(const GroupTiles at, const float4 own, const int is_max) {
  *(__local float4*)(at.p_tile + at.item.x * TILE_R + 4 * at.item.y) = own;
  barrier(CLK_LOCAL_MEM_FENCE);  // all parts are stored
  float4 whole = *(__local const float4*)(at.p_tile + 4 * at.item.y);
  OCL_UNROLL
  for (int x = 1; x < ACROSS; ++x) {
    const float4 part = *(__local const float4*)(at.p_tile + x * TILE_R + 4 * at.item.y);
    whole = is_max ? (part > whole ? part : whole) : whole + part;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // all have read the parts, which may now be overwritten
  return whole;
}
