// kernels/sort/count_item.cl: how often each digit occurs in a block of keys. Item kernel: one work-item = one block.
//
// Inputs: keys[row][i] at row * keys_row + i, 0 <= i < n. HAS_CHOSEN 1: chosen[row], a key.
// Global size: (blocks, rows, 1), local size (1, 1, 1).
// Epilogue macros: STORE(count, row, digit, block).

#define TABLES \
  4  // Equal digits that follow one another are counted in different tables, so that no increment waits for the last.

__kernel ONE_ITEM void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int block = get_group_id(0), row = get_group_id(1);
  __global const Key* x = keys + keys_offset + row * keys_row + block * BLOCK;
  const int count = min(BLOCK, n - block * BLOCK);
  int counts[TABLES][DIGITS];
  for (int t = 0; t < TABLES; ++t)
    for (int d = 0; d < DIGITS; ++d) counts[t][d] = 0;
#if HAS_CHOSEN
  const int above = shift + 8;
  const Key prefix = chosen[chosen_offset + row] >> above;
  for (int i = 0; i < count; ++i)
    if (x[i] >> above == prefix) ++counts[i % TABLES][digit_of(x[i], shift, flip)];
#else
  int i = 0;
  for (; i + TABLES <= count; i += TABLES) {
    OCL_UNROLL
    for (int t = 0; t < TABLES; ++t) ++counts[t][digit_of(x[i + t], shift, flip)];
  }
  for (; i < count; ++i) ++counts[0][digit_of(x[i], shift, flip)];
#endif
  for (int d = 0; d < DIGITS; ++d) {
    int sum = 0;
    OCL_UNROLL
    for (int t = 0; t < TABLES; ++t) sum += counts[t][d];
    STORE(sum, row, d, block);
  }
}
