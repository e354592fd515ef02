// kernels/tensor_core/types.cl: types of operands, alignment, and the order of tiles, for all kernels on tensor cores.
//
// Operands are fp32, or of 16 bits with IN_BF16 or IN_HALF. They are stored in global and local memory with the same
// type. Only packed operands of fp32 are stored as pairs of fp16 (PAIRS). A chunk is 16 bytes of neighbouring elements.
#ifndef PACKED
#define PACKED 0  // 1: both operands are packed in blocks, as pack/group.cl writes them
#endif
#if defined(IN_BF16) || defined(IN_HALF)
#undef TERMS
#define TERMS 1
#define HALVES 1
#define PAIRS 0
#else
#ifndef TERMS
#define TERMS 3  // products that stand for one product of floats: 3 (fp32), 1 (TF32)
#endif
#define PAIRS (PACKED && TERMS == 3)
#define HALVES PAIRS
#endif
#if HALVES
#define OPERAND_T ushort
#define CHUNK 8
#else
#define OPERAND_T float
#define CHUNK 4
#endif
#define CHUNK_ALIGNED(offset) (ALIGNED_BASES || (offset) % CHUNK == 0)  // as ALIGNED of base/types.cl, for chunks

// STOREA is STOREV for aligned vectors. A whole tile is stored by STOREA without a condition on each vector, so that
// the loads of an epilogue are in flight together.
#ifndef STORES_ALIGNED
#define STORES_ALIGNED 0
#define STOREA STOREV
#endif

// Returns the row and column of tile number g, counted in tiles. Tiles are numbered in bands of 8 rows, so that
// work-groups which run at the same time share operands in the cache.
ALWAYS_INLINE int2 tile_at(const int g, const int m_tiles, const int n_tiles) {
  const int band = g / (8 * n_tiles) * 8, rows = min(m_tiles - band, 8), in_band = g - band * n_tiles;
  return (int2)(band + in_band % rows, in_band / rows);
}
