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
#ifndef BLOCK
#define BLOCK 4096  // keys of a block, which a work-item or a work-group counts, moves or sorts
#endif
#ifndef HAS_POSITIONS
#define HAS_POSITIONS 0  // 1: the keys have been moved before, and `positions` tells from where
#endif
#ifndef HAS_CHOSEN
#define HAS_CHOSEN 0  // 1: only keys that have the digits of `chosen` above this one are counted
#endif

OCL_INLINE int digit_of(const Key key, const int shift, const int flip) {
  return ((int)(key >> shift) & (DIGITS - 1)) ^ flip;
}
