// kernels/sort/move_item.cl: moves the keys of a block to their places in the order of a digit. Item kernel: one work-item = one block.
//
// Inputs: keys[row][i] at row * keys_row + i, 0 <= i < n. HAS_POSITIONS 1: positions[row][i] at row * positions_row + i.
//   ends[row][digit][block]: the number of the row's keys with a lower digit, or with this digit in blocks up to this one. SUMS 1:
//   the number of keys with this digit in this block, from which each work-item computes these sums.
// Global size: (blocks, rows, 1), local size (1, 1, 1).
// Epilogue macros: STORE(key, row, place), STORE1(position, row, place). Macro of a launch: SUMS (see above).

__kernel ONE_ITEM void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int block = get_group_id(0), row = get_group_id(1), begin = block * BLOCK, count = min(BLOCK, n - begin);
  __global const Key* x = keys + keys_offset + row * keys_row + begin;
#if HAS_POSITIONS
  __global const int* from = positions + positions_offset + row * positions_row + begin;
#endif
  __global const int* before = ends + ends_offset + row * ((long)DIGITS * blocks) + (SUMS ? 0 : block - 1);
  int next[DIGITS];  // the place of the next key with this digit
#if SUMS
  int sum = 0;
  for (int d = 0; d < DIGITS; ++d) {
    int own = 0, all = 0;
    for (int b = 0; b < block; ++b) own += before[d * blocks + b];
    for (int b = block; b < blocks; ++b) all += before[d * blocks + b];
    next[d] = sum + own;
    sum += own + all;
  }
#else
  next[0] = block == 0 ? 0 : before[0];
  for (int d = 1; d < DIGITS; ++d) next[d] = before[d * (long)blocks];
#endif
  for (int i = 0; i < count; ++i) {
    const Key key = x[i];
    const int place = next[digit_of(key, shift, flip)]++;
    STORE(key, row, place);
#if HAS_POSITIONS
    STORE1(from[i], row, place);
#else
    STORE1(begin + i, row, place);
#endif
  }
}
