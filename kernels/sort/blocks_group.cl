// kernels/sort/blocks_group.cl: sorts each block of a row, and stores its first KEEP keys. Group kernel: one work-group = one block.
//
// A bitonic sort in local memory. Keys are compared together with their places in the block, so that equal keys keep their order.
// LOCAL_KEYS 0: local memory has room for the places only, and each comparison reads its keys from the row.
//
// Inputs: keys[row][i] at row * keys_row + i, 0 <= i < n. HAS_POSITIONS 1: positions[row][i] at row * positions_row + i.
// Arguments: keys, keys_offset, positions, positions_offset (HAS_POSITIONS), int n, long keys_row, positions_row,
//   EPILOGUE_PARAMS. Global size: (blocks * ITEMS, rows, 1), local size (ITEMS, 1, 1).
// Epilogue macros: STORE(key, row, block * KEEP + i), STORE1(position, row, block * KEEP + i). Past the end of the row, keys are the
//   greatest ones, with any position.
// Macros of a launch: KEEP (keys of a block that are stored), SIZE (a power of two, at least BLOCK), ITEMS (work-items
//   of a group), LOCAL_KEYS (see above).
#ifndef EPILOGUE_PARAMS
#define EPILOGUE_PARAMS , __global Key *keys_out, const long keys_out_offset, __global int *out, const long out_offset
#define EPILOGUE_PASS , keys_out, keys_out_offset, out, out_offset
#define PLACES ((n + BLOCK - 1) / BLOCK * (long)KEEP)
#define STORE(acc, row, place) (keys_out[keys_out_offset + (row) * PLACES + (place)] = (acc))
#define STORE1(acc, row, place) (out[out_offset + (row) * PLACES + (place)] = (acc))
#endif

#if LOCAL_KEYS
#define KEY(i) sorted[i]
#else
#define KEY(i) (places[i] < count ? x[places[i]] : GREATEST_KEY)
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if LOCAL_KEYS
  __local Key sorted[SIZE];
#endif
  __local ushort places[SIZE];
  const int lane = get_local_id(0), block = get_group_id(0), row = get_group_id(1), begin = block * BLOCK;
  const int count = min(BLOCK, n - begin);
  __global const Key* x = keys + keys_offset + row * keys_row + begin;
  for (int i = lane; i < SIZE; i += ITEMS) {
    places[i] = i;
#if LOCAL_KEYS
    sorted[i] = i < count ? x[i] : GREATEST_KEY;
#endif
  }
  for (int run = 2; run <= SIZE; run *= 2)
    for (int step = run / 2; step > 0; step /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);  // The keys of the step before are in their places.
      for (int k = lane; k < SIZE / 2; k += ITEMS) {
        const int a = 2 * k - (k & (step - 1)), b = a + step, rises = (a & run) == 0;
        const Key first = KEY(a), second = KEY(b);
        const ushort p = places[a], q = places[b];
        if ((first > second || (first == second && p > q)) == rises) {
          places[a] = q, places[b] = p;
#if LOCAL_KEYS
          sorted[a] = second, sorted[b] = first;
#endif
        }
      }
    }
  barrier(CLK_LOCAL_MEM_FENCE);  // All keys are sorted.
  for (int i = lane; i < KEEP; i += ITEMS) {
    const int at = min(begin + places[i], n - 1);
    STORE(KEY(i), row, block * KEEP + i);
#if HAS_POSITIONS
    STORE1(positions[positions_offset + row * positions_row + at], row, block * KEEP + i);
#else
    STORE1(at, row, block * KEEP + i);
#endif
  }
}
