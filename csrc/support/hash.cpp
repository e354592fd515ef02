// csrc/support/hash.cpp: MurmurHash3_x64_128. It reads unaligned input byte by byte.
#include "csrc/support/hash.h"

#include <cstring>

namespace ocl {
namespace {

uint64_t rotate_left(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

uint64_t mix_final(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

constexpr uint64_t kC1 = 0x87c37b91114253d5ULL, kC2 = 0x4cf5ad432745937fULL;
uint64_t mix_low(uint64_t k) { return rotate_left(k * kC1, 31) * kC2; }
uint64_t mix_high(uint64_t k) { return rotate_left(k * kC2, 33) * kC1; }

}  // namespace

Hash128 hash128(std::string_view bytes, uint64_t seed) noexcept {
  uint64_t low = seed, high = seed;
  const size_t blocks = bytes.size() / 16;
  for (size_t i = 0; i < blocks; ++i) {
    uint64_t k[2];
    std::memcpy(k, bytes.data() + 16 * i, 16);
    low = (rotate_left(low ^ mix_low(k[0]), 27) + high) * 5 + 0x52dce729;
    high = (rotate_left(high ^ mix_high(k[1]), 31) + low) * 5 + 0x38495ab5;
  }
  uint64_t tail[2] = {0, 0};
  std::memcpy(tail, bytes.data() + 16 * blocks, bytes.size() % 16);
  low ^= mix_low(tail[0]) ^ bytes.size();
  high ^= mix_high(tail[1]) ^ bytes.size();
  low += high;
  high += low;
  low = mix_final(low);
  high = mix_final(high);
  low += high;
  high += low;
  return {low, high};
}

std::string hash_hex(std::string_view bytes) {
  const Hash128 hash = hash128(bytes);
  std::string text(32, '0');
  for (int i = 0; i < 32; ++i) {
    const uint64_t word = i < 16 ? hash.high : hash.low;
    text[i] = "0123456789abcdef"[(word >> (60 - 4 * (i % 16))) & 15];
  }
  return text;
}

}  // namespace ocl
