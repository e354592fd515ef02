// kernels/sort/digit.cl: what the kernels of sorting share: keys, and the digits by which they are sorted.
//
// Keys are signed integers. A digit has 8 bits: (key >> shift) & 255. In the digit with the key's sign, `flip` is 128, which orders
// negative keys before others; elsewhere it is 0.
#ifdef LONG_KEYS
typedef long Key;
#define GREATEST_KEY LONG_MAX
#else
typedef int Key;
#define GREATEST_KEY INT_MAX
#endif
#define DIGITS 256
// Macros of a launch: BLOCK (keys of a block, which a work-item or a work-group counts, moves or sorts), HAS_POSITIONS
//   (1: the keys have been moved before, and `positions` tells from where), HAS_CHOSEN (1: only keys that have the
//   digits of `chosen` above this one are counted).

OCL_INLINE int digit_of(const Key key, const int shift, const int flip) {
  return ((int)(key >> shift) & (DIGITS - 1)) ^ flip;
}
