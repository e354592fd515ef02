// csrc/support/hash.h: a 128-bit hash for cache keys and checksums. Fast, the same on every machine; not for secrets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ocl {

struct Hash128 {
  uint64_t low = 0, high = 0;
};

/// MurmurHash3_x64_128 (Austin Appleby, public domain algorithm).
Hash128 hash128(std::string_view bytes, uint64_t seed = 0) noexcept;
/// 32 lower-case hexadecimal digits.
std::string hash_hex(std::string_view bytes);

}  // namespace ocl
