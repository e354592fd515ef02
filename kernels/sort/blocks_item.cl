// kernels/sort/blocks_item.cl: sorts each block of a row, and stores its first KEEP keys. Item kernel: one work-item = one block.
//
// Up to MOST_INSERTED keys to keep are inserted into a sorted list; most keys of a block come after its last one, which 16 at a time
// are compared with. More keys are sorted by DIGITS_SORTED digits, the lowest first; a digit that all keys share needs no move.
//
// Inputs: keys[row][i] at row * keys_row + i, 0 <= i < n. HAS_POSITIONS 1: positions[row][i] at row * positions_row + i.
// Global size: (blocks, rows, 1), local size (1, 1, 1).
// Epilogue macros: STORE(key, row, block * KEEP + i), STORE1(position, row, block * KEEP + i). Past the end of the row, keys are the
//   greatest ones, with any position.
// Macros of a launch: KEEP (keys of a block that are stored), SHIFT (the lowest bit in which keys differ),
//   DIGITS_SORTED (digits from this bit on), SIGNED (1: the highest digit has the sign).
#define MOST_INSERTED 128

#if KEEP <= MOST_INSERTED && KEEP < BLOCK
#define INSERTS 1
#define SPACE KEEP
#else
#define INSERTS 0
#define SPACE BLOCK
#endif

typedef struct {
  Key keys[SPACE];
  int at[SPACE];  // the places of the keys in the block
} List;

#if INSERTS
// Puts a key into its place among the first `last` keys of the list, behind equal ones. The key there before at `last` is dropped.
OCL_INLINE void insert(List* list, const int last, const Key key, const int at) {
  int i = last;
  for (; i >= 16 && list->keys[i - 16] > key; i -= 16) {
    vstore16(vload16(0, list->keys + i - 16), 0, list->keys + i - 15);
    vstore16(vload16(0, list->at + i - 16), 0, list->at + i - 15);
  }
  for (; i > 0 && list->keys[i - 1] > key; --i) {
    list->keys[i] = list->keys[i - 1];
    list->at[i] = list->at[i - 1];
  }
  list->keys[i] = key;
  list->at[i] = at;
}
#else
// Moves the keys into the order of a digit. Returns 0, and moves nothing, if all of them share it.
OCL_INLINE int move(const List* from, List* to, const int count, const int shift, const int flip) {
  int next[DIGITS];
  for (int d = 0; d < DIGITS; ++d) next[d] = 0;
  for (int i = 0; i < count; ++i) ++next[digit_of(from->keys[i], shift, flip)];
  if (next[digit_of(from->keys[0], shift, flip)] == count) return 0;
  int sum = 0;
  for (int d = 0; d < DIGITS; ++d) {
    const int begin = sum;
    sum += next[d];
    next[d] = begin;
  }
  for (int i = 0; i < count; ++i) {
    const int place = next[digit_of(from->keys[i], shift, flip)]++;
    to->keys[place] = from->keys[i];
    to->at[place] = from->at[i];
  }
  return 1;
}
#endif

__kernel ONE_ITEM void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int block = get_group_id(0), row = get_group_id(1), begin = block * BLOCK, count = min(BLOCK, n - begin);
  __global const Key* x = keys + keys_offset + row * keys_row + begin;
  List lists[INSERTS ? 1 : 2];
  const List* sorted = lists;
#if INSERTS
  int i = 0;
  for (; i < min(KEEP, count); ++i) insert(lists, i, x[i], i);
  for (; i + 16 <= count; i += 16) {
    if (!any(vload16(0, x + i) < lists->keys[KEEP - 1])) continue;
    for (int j = i; j < i + 16; ++j)
      if (x[j] < lists->keys[KEEP - 1]) insert(lists, KEEP - 1, x[j], j);
  }
  for (; i < count; ++i)
    if (x[i] < lists->keys[KEEP - 1]) insert(lists, KEEP - 1, x[i], i);
#else
  for (int i = 0; i < count; ++i) lists->keys[i] = x[i], lists->at[i] = i;
  int which = 0;
  for (int d = 0; d < DIGITS_SORTED; ++d)
    which ^= move(lists + which, lists + (1 - which), count, SHIFT + 8 * d,
                  SIGNED && d == DIGITS_SORTED - 1 ? DIGITS / 2 : 0);
  sorted = lists + which;
#endif
  for (int i = 0; i < KEEP; ++i) {
    const int inside = i < count, at = inside ? sorted->at[i] : 0;
#if HAS_POSITIONS
    const int position = positions[positions_offset + row * positions_row + begin + at];
#else
    const int position = begin + at;
#endif
    STORE(inside ? sorted->keys[i] : GREATEST_KEY, row, block * KEEP + i);
    STORE1(position, row, block * KEEP + i);
  }
}
