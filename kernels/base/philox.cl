// kernels/base/philox.cl: Philox 4x32-10 (Salmon et al. 2011), which makes four random words from a key and a counter.
#ifndef PHILOX_ROUNDS
// Turns the counter w0 .. w3 into random words, and uses up the key k0, k1. WORD: uint or a vector of uint, the type of w0 .. w3.
#define PHILOX_ROUNDS(WORD, w0, w1, w2, w3, k0, k1)                                      \
  for (int round = 0; round < 10; ++round) {                                             \
    const WORD high0 = mul_hi(w0, (WORD)(0xD2511F53u)), low0 = w0 * (WORD)(0xD2511F53u); \
    const WORD high1 = mul_hi(w2, (WORD)(0xCD9E8D57u)), low1 = w2 * (WORD)(0xCD9E8D57u); \
    w0 = high1 ^ w1 ^ (WORD)(k0);                                                        \
    w1 = low1;                                                                           \
    w2 = high0 ^ w3 ^ (WORD)(k1);                                                        \
    w3 = low0;                                                                           \
    k0 += 0x9E3779B9u;                                                                   \
    k1 += 0xBB67AE85u;                                                                   \
  }
#endif
