// kernels/sort/count_group.cl: how often each digit occurs in a block of keys. Group kernel: one work-group = one block.
//
// Inputs: keys[row][i] at row * keys_row + i, 0 <= i < n. HAS_CHOSEN 1: chosen[row], a key.
// Global size: (blocks * ITEMS, rows, 1), local size (ITEMS, 1, 1).
// Epilogue macros: STORE(count, row, digit, block).
// Macros of a launch: ITEMS (work-items of a group).

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local int counts[DIGITS];
  const int lane = get_local_id(0), block = get_group_id(0), row = get_group_id(1);
  __global const Key* x = keys + keys_offset + row * keys_row + block * BLOCK;
  const int count = min(BLOCK, n - block * BLOCK);
  for (int d = lane; d < DIGITS; d += ITEMS) counts[d] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);  // All counts are 0.
#if HAS_CHOSEN
  const int above = shift + 8;
  const Key prefix = chosen[chosen_offset + row] >> above;
#endif
  for (int i = lane; i < count; i += ITEMS) {
    const Key key = x[i];
#if HAS_CHOSEN
    if (key >> above != prefix) continue;
#endif
    atomic_inc(counts + digit_of(key, shift, flip));
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // All keys are counted.
  for (int d = lane; d < DIGITS; d += ITEMS) STORE(counts[d], row, d, block);
}
