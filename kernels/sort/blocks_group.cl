// kernels/sort/blocks_group.cl: sorts each block of a row, and stores its first KEEP keys. Group kernel: one work-group = one block.
//
// A bitonic sort in local memory. Keys are compared together with their places in the block, so that equal keys keep their order.
// SELECTS 1: first the keys to keep are selected, and only these are sorted. The last of them is found by its digits, the highest
// first: the keys that have the digits found so far are counted by their next digit.
// END > 0: all keys are from 0 to END - 1, and the whole row is one block. The keys are counted by their values. Each then takes one of
// the places of its value, in any order, and the places of each value are put in order. Where a value has more than MOST_EQUAL keys,
// the bitonic sort is faster.
//
// Inputs: keys[row][i] at row * keys_row + i, 0 <= i < n. HAS_POSITIONS 1: positions[row][i] at row * positions_row + i.
// Global size: (blocks * ITEMS, rows, 1), local size (ITEMS, 1, 1).
// Epilogue macros: STORE(key, row, block * KEEP + i), STORE1(position, row, block * KEEP + i). Past the end of the row, keys are the
//   greatest ones, with any position.
// Macros of a launch: KEEP (keys of a block that are stored), SELECTS (see above), SIZE (keys that are sorted: a power of two,
//   at least KEEP or, without SELECTS, BLOCK), ITEMS (work-items of a group), LOCAL_KEYS (0: local memory has no room for
//   the block's keys, which are read from the row each time), END (see above), SHIFT (the lowest bit in which keys differ), DIGITS_SORTED
//   (digits from this bit on), SIGNED (1: the highest digit has the sign).

#if LOCAL_KEYS && !SELECTS
#define BLOCK_KEY(i) sorted[i]
#elif LOCAL_KEYS
#define BLOCK_KEY(i) block_keys[i]
#else
#define BLOCK_KEY(i) ((i) < count ? x[i] : GREATEST_KEY)
#endif
#if LOCAL_KEYS || SELECTS
#define KEY(i) sorted[i]
#else
#define KEY(i) BLOCK_KEY(places[i])
#endif

#if SELECTS
#ifdef LONG_KEYS
typedef ulong Order;
#else
typedef uint Order;
#endif
#define ORDER_BITS (8 * DIGITS_SORTED)
#define GROUPS 16  // of digits, with a sum of counts each
#define PLACE_DIGITS 2  // A place in a block has 16 bits.

// Returns the digits of a key as a number that has its order.
OCL_INLINE Order order_of(const Key key) {
  const Order all =
      (Order)(key >> SHIFT) & ((Order)-1 >> (8 * sizeof(Order) - min(ORDER_BITS, (int)(8 * sizeof(Order)))));
  return SIGNED ? all ^ (Order)1 << (ORDER_BITS - 1) : all;
}
// Returns the first digit at which the sum of the counts reaches *rest. *rest becomes the number of keys that are left for
// this digit. Inlined, because PoCL 3.1 miscompiles barriers in a function that is called.
ALWAYS_INLINE int next_digit(__local const int* counts, __local int* sums, int* rest, const int lane) {
  for (int g = lane; g < GROUPS; g += ITEMS) {
    int sum = 0;
    for (int d = 0; d < DIGITS / GROUPS; ++d) sum += counts[g * (DIGITS / GROUPS) + d];
    sums[g] = sum;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // The sums are there.
  int before = 0, digit = 0, goes_on = 1;
  OCL_UNROLL
  for (int g = 0; g < GROUPS - 1; ++g) {
    goes_on = goes_on && before + sums[g] < *rest;
    before += goes_on ? sums[g] : 0;
    digit += goes_on ? DIGITS / GROUPS : 0;
  }
  __local const int* from = counts + digit;
  goes_on = 1;
  OCL_UNROLL
  for (int d = 0; d < DIGITS / GROUPS - 1; ++d) {
    goes_on = goes_on && before + from[d] < *rest;
    before += goes_on ? from[d] : 0;
    digit += goes_on;
  }
  *rest -= before;
  return digit;
}
#endif

#if END
#define MOST_EQUAL 32
// Values of a work-item. An odd number lets neighbours use other banks of local memory.
#define VALUES_EACH ((END + ITEMS - 1) / ITEMS / 2 * 2 + 1)

// Sorts the places of a block by the values of its keys. Returns 0 if a value has too many keys.
ALWAYS_INLINE int count_values(__local const Key* keys, __local ushort* places, __local int* ends, __local ushort* sums,
                               __local int* crowded, const int lane) {
  __local int* own_ends = ends + lane * VALUES_EACH;
  for (int v = lane; v < ITEMS * VALUES_EACH; v += ITEMS) ends[v] = 0;
  if (lane == 0) *crowded = 0;
  barrier(CLK_LOCAL_MEM_FENCE);  // All counts are 0.
  for (int i = lane; i < BLOCK; i += ITEMS) atomic_inc(ends + keys[i]);
  barrier(CLK_LOCAL_MEM_FENCE);  // All keys are counted.
  int own = 0;
  for (int v = 0; v < VALUES_EACH; ++v) {
    own += own_ends[v];
    if (own_ends[v] > MOST_EQUAL) *crowded = 1;
  }
  const int first = sum_before(sums, own, lane);
  int sum = first;
  for (int v = 0; v < VALUES_EACH; ++v) {
    const int count = own_ends[v];
    own_ends[v] = sum;
    sum += count;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // The first place of each value is there.
  if (*crowded) return 0;
  for (int i = lane; i < BLOCK; i += ITEMS) places[atomic_inc(ends + keys[i])] = i;
  barrier(CLK_LOCAL_MEM_FENCE);  // All keys have a place, and each value has its end.
  int begin = first;
  for (int v = 0; v < VALUES_EACH; ++v) {
    const int end = own_ends[v];
    for (int i = begin + 1; i < end; ++i) {
      const ushort moved = places[i];
      int to = i;
      for (; to > begin && places[to - 1] > moved; --to) places[to] = places[to - 1];
      places[to] = moved;
    }
    begin = end;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // All places are in order.
  return 1;
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
#if LOCAL_KEYS || SELECTS
  __local Key sorted[SIZE];
#endif
  __local ushort places[SIZE];
  const int lane = get_local_id(0), block = get_group_id(0), row = get_group_id(1), begin = block * BLOCK;
  const int count = min(BLOCK, n - begin);
  __global const Key* x = keys + keys_offset + row * keys_row + begin;
#if SELECTS
#if LOCAL_KEYS
  __local Key block_keys[BLOCK];
  for (int i = lane; i < BLOCK; i += ITEMS) block_keys[i] = i < count ? x[i] : GREATEST_KEY;
#endif
  __local int counts[DIGITS], sums[GROUPS], taken;
  // The last key to keep, and its place; how many of the keys that have its digits so far are kept, and how many there are.
  Order last = 0;
  int last_place = 0, rest = KEEP, equal = BLOCK;
  for (int d = DIGITS_SORTED - 1; d >= -PLACE_DIGITS; --d) {
    if (d < 0 && equal == rest) {  // All of the equal keys with these digits of their places are kept.
      last_place |= (1 << 8 * (d + PLACE_DIGITS + 1)) - 1;
      break;
    }
    for (int i = lane; i < DIGITS; i += ITEMS) counts[i] = 0;
    if (lane == 0) taken = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // All counts are 0.
    const int shift = 8 * (d < 0 ? d + PLACE_DIGITS : d);
    for (int i = lane; i < BLOCK; i += ITEMS) {
      const Order order = order_of(BLOCK_KEY(i));
      if (d >= 0 ? d == DIGITS_SORTED - 1 || order >> shift >> 8 == last >> shift >> 8
                 : order == last && i >> shift >> 8 == last_place >> shift >> 8)
        atomic_inc(counts + ((d < 0 ? i : (int)(order >> shift)) >> (d < 0 ? shift : 0) & (DIGITS - 1)));
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // All keys are counted.
    const int digit = next_digit(counts, sums, &rest, lane);
    equal = counts[digit];
    if (d < 0)
      last_place |= digit << shift;
    else
      last |= (Order)digit << shift;
    barrier(CLK_LOCAL_MEM_FENCE);  // The counts have been read.
  }
  for (int i = lane; i < BLOCK; i += ITEMS) {
    const Key key = BLOCK_KEY(i);
    const Order order = order_of(key);
    if (order > last || (order == last && i > last_place)) continue;
    const int at = atomic_inc(&taken);
    sorted[at] = key;
    places[at] = i;
  }
  for (int i = KEEP + lane; i < SIZE; i += ITEMS) sorted[i] = GREATEST_KEY, places[i] = USHRT_MAX;
#else
#if LOCAL_KEYS
  for (int i = lane; i < SIZE; i += ITEMS) sorted[i] = i < count ? x[i] : GREATEST_KEY;
#endif
#if END
  __local int ends[ITEMS * VALUES_EACH], crowded;
  __local ushort sums[ITEMS];
  if (count_values(sorted, places, ends, sums, &crowded, lane)) {
    for (int i = lane; i < BLOCK; i += ITEMS) {
      const int at = places[i];
      STORE(sorted[at], row, i);
#if HAS_POSITIONS
      STORE1(positions[positions_offset + row * positions_row + at], row, i);
#else
      STORE1(at, row, i);
#endif
    }
    return;
  }
#endif
  for (int i = lane; i < SIZE; i += ITEMS) places[i] = i;
#endif
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
