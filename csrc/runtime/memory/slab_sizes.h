// csrc/runtime/memory/slab_sizes.h: which pool serves a request, and how large a new slab is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "csrc/kernels/caps.h"
#include "csrc/runtime/memory/slab.h"
#include "csrc/runtime/memory/slab_memory.h"

namespace ocl::runtime {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallLimit = kMiB;       // Smaller requests get blocks of small slabs.
constexpr size_t kLargeLimit = 32 * kMiB;  // Larger requests get a slab of their own.
constexpr size_t kSmallSlabBytes = 32 * kMiB;
constexpr size_t kSideSlabBytes = 4 * kMiB;  // Size of small slabs of all streams except the default one.
// Size of the first large slab. Later ones grow with the total that is reserved.
constexpr size_t kLargeSlabBytes = 64 * kMiB;
constexpr size_t kLargestSlabBytes = 512 * kMiB;
constexpr size_t kOwnSlabStep = 2 * kMiB;  // Slabs of kOwn and kShared are multiples of a huge page.

inline size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

inline Pool pool_of(size_t bytes, Sharing sharing) {
  if (sharing == Sharing::kCuda) return kShared;
  return bytes < kSmallLimit ? kSmall : bytes <= kLargeLimit ? kLarge : kOwn;
}

/// Returns the size of a slab for a request of `bytes` bytes. `reserved`: the bytes of all slabs so far.
inline size_t slab_bytes(Pool pool, size_t bytes, int stream, const Caps& caps, size_t reserved, bool cuda_is_preferred) {
  const auto limit = static_cast<size_t>(std::max<int64_t>(caps.max_alloc_bytes, 0));
  // Devices with little memory get small slabs.
  const size_t share = round_up(static_cast<size_t>(caps.global_bytes) / 16, kMiB);
  size_t slab = stream == 0 ? kSmallSlabBytes : kSideSlabBytes;
  if (pool == kShared) return std::max(round_up(std::min({slab, share, limit}), kOwnSlabStep), round_up(bytes, kOwnSlabStep));
  if (pool == kOwn) return std::min(round_up(bytes, kOwnSlabStep), std::max(limit, bytes));
  if (pool == kLarge) {
    const size_t largest = cuda_is_preferred ? SlabMemory::kMostImported : kLargestSlabBytes;
    slab = std::clamp(round_up(reserved / 4, kLargeSlabBytes), kLargeSlabBytes, largest);
  }
  return std::max(std::min({slab, share, limit}), std::min(round_up(bytes, kMiB), std::max(limit, bytes)));
}

}  // namespace ocl::runtime
