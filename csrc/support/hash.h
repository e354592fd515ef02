// csrc/support/hash.h: a 128-bit hash for cache keys and checksums. It is fast, equal on every machine, and not
// cryptographic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ocl {

struct Hash128 {
  uint64_t low = 0, high = 0;
};

/// Returns MurmurHash3_x64_128 of the bytes (algorithm by Austin Appleby, public domain).
Hash128 hash128(std::string_view bytes, uint64_t seed = 0) noexcept;
/// Returns the hash as 32 lower-case hexadecimal digits.
std::string hash_hex(std::string_view bytes);

}  // namespace ocl
