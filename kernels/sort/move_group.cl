// kernels/sort/move_group.cl: moves the keys of a block to their places in the order of a digit. Group kernel: one work-group = one block.
//
// The places of the block's keys in the order of the digit are found in local memory, by two rounds of four bits each. So neighbouring
// work-items store neighbours.
//
//   order    | a b c d ... |      each work-item has BLOCK / ITEMS of these in a row; BLOCK is a multiple of ITEMS
//   counts   [16][ITEMS]          how many of them have each value of the four bits; their running sum is where they go
//
// Inputs: keys[row][i] at row * keys_row + i, 0 <= i < n. HAS_POSITIONS 1: positions[row][i] at row * positions_row + i.
//   ends[row][digit][block]: the number of the row's keys with a lower digit, or with this digit in blocks up to this one. SUMS 1:
//   the number of keys with this digit in this block, from which each work-group computes these sums.
// Global size: (blocks * ITEMS, rows, 1), local size (ITEMS, 1, 1).
// Epilogue macros: STORE(key, row, place), STORE1(position, row, place).
// Macros of a launch: ITEMS (work-items of a group; a power of two from 16 to 1024), SUMS (see above).

#define VALUES 16  // of four bits
#define EACH (BLOCK / ITEMS)  // keys of a work-item
#define GROUP 16  // digits that are summed together

// Replaces the counts by the sums of those before each.
ALWAYS_INLINE void sum_counts(__local ushort* counts, __local ushort* sums, const int lane) {
  barrier(CLK_LOCAL_MEM_FENCE);  // All counts are there.
  int own = 0;
  for (int k = 0; k < VALUES; ++k) own += counts[lane * VALUES + k];
  int sum = sum_before(sums, own, lane);
  for (int k = 0; k < VALUES; ++k) {
    const int count = counts[lane * VALUES + k];
    counts[lane * VALUES + k] = sum;
    sum += count;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // All sums are there.
}

// Puts the places into the order of the four bits at `bit` of the digits.
ALWAYS_INLINE void round_of(__local const uchar* digits, __local ushort* order, __local ushort* counts,
                            __local ushort* sums, const int bit, const int lane) {
  ushort own[EACH];
  for (int v = 0; v < VALUES; ++v) counts[v * ITEMS + lane] = 0;
  for (int k = 0; k < EACH; ++k) {
    own[k] = order[lane * EACH + k];
    ++counts[(digits[own[k]] >> bit & (VALUES - 1)) * ITEMS + lane];
  }
  sum_counts(counts, sums, lane);  // All have read the order, too.
  for (int k = 0; k < EACH; ++k) order[counts[(digits[own[k]] >> bit & (VALUES - 1)) * ITEMS + lane]++] = own[k];
  barrier(CLK_LOCAL_MEM_FENCE);  // The new order is there.
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  __local uchar digits[BLOCK];
  __local ushort order[BLOCK], counts[VALUES * ITEMS], sums[ITEMS];
  __local int to[DIGITS];  // the place of the first key with this digit, less its place in the block's order
#if SUMS
  __local int first[DIGITS], totals[DIGITS], sums_before[DIGITS / GROUP];
#endif
  const int lane = get_local_id(0), block = get_group_id(0), row = get_group_id(1), begin = block * BLOCK;
  const int count = min(BLOCK, n - begin);
  __global const Key* x = keys + keys_offset + row * keys_row + begin;
  __global const int* before = ends + ends_offset + row * ((long)DIGITS * blocks) + (SUMS ? 0 : block - 1);
  for (int i = lane; i < BLOCK; i += ITEMS) {
    digits[i] = i < count ? digit_of(x[i], shift, flip) : DIGITS - 1;
    order[i] = i;
  }
#if SUMS
  for (int d = lane; d < DIGITS; d += ITEMS) {
    int own = 0, all = 0;
    for (int b = 0; b < blocks; ++b) {
      const int there = before[d * blocks + b];
      own += b < block ? there : 0;
      all += there;
    }
    first[d] = own;
    totals[d] = all;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // The counts of all digits are there.
  for (int g = lane; g < DIGITS / GROUP; g += ITEMS) {
    int sum = 0;
    for (int d = 0; d < g * GROUP; ++d) sum += totals[d];
    sums_before[g] = sum;
  }
#endif
  barrier(CLK_LOCAL_MEM_FENCE);  // All digits are there.
#if SUMS
  for (int d = lane; d < DIGITS; d += ITEMS) {
    int sum = sums_before[d / GROUP];
    for (int e = d / GROUP * GROUP; e < d; ++e) sum += totals[e];
    first[d] += sum;
  }
#endif
  round_of(digits, order, counts, sums, 0, lane);
  round_of(digits, order, counts, sums, 4, lane);
  for (int i = lane; i < count; i += ITEMS) {
    const int d = digits[order[i]];
#if SUMS
    if (i == 0 || d != digits[order[i - 1]]) to[d] = first[d] - i;
#else
    if (i == 0 || d != digits[order[i - 1]]) to[d] = (d == 0 && block == 0 ? 0 : before[d * (long)blocks]) - i;
#endif
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // The places of all digits are there.
  for (int i = lane; i < count; i += ITEMS) {
    const int at = order[i], place = to[digits[at]] + i;
    STORE(x[at], row, place);
#if HAS_POSITIONS
    STORE1(positions[positions_offset + row * positions_row + begin + at], row, place);
#else
    STORE1(begin + at, row, place);
#endif
  }
}
