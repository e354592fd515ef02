// csrc/runtime/memory/address_range.h: the addresses that stand for a device's memory. They are reserved, cannot be read or
// written, and are assigned in chunks.
//
//   reserved range   | chunk 0 | chunk 1 | chunk 2 | ...     64 MiB of addresses each, not of memory
//   slab             | slab at chunk 0   | slab    |         a slab begins at a chunk
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/runtime/opencl/device_info.h"

namespace ocl::runtime {

struct Slab;

class AddressRange {
 public:
  static constexpr size_t kChunkBytes = size_t{64} << 20;
  static constexpr size_t kMaxBytes = size_t{1} << 40;  // Largest size of a range.

  /// Throws kOutOfMemory if the system has no addresses left.
  explicit AddressRange(const DeviceInfo& device);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  size_t bytes() const { return bytes_; }
  bool contains(uintptr_t address) const noexcept { return address - base_ < bytes_; }
  /// Returns the slab that contains `address`; nullptr if there is none. Takes no lock.
  Slab* slab_at(uintptr_t address) const noexcept;
  /// Assigns `slab->bytes` of free addresses to the slab and sets slab->address. Returns false if no free range is that
  /// large. An address is reused as late as possible.
  bool place(Slab* slab);
  void remove(const Slab* slab) noexcept;
  template <class Function>
  void for_each_slab(Function function) const {
    for (size_t i = 0; i < chunks_.size(); ++i)
      if (Slab* slab = chunks_[i].load(std::memory_order_relaxed); slab && begins_at(slab, i)) function(slab);
  }

 private:
  static size_t chunk_count(size_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }
  bool begins_at(const Slab* slab, size_t chunk) const noexcept;
  void* reserved_ = nullptr;
  size_t bytes_ = 0;
  uintptr_t base_ = 0;
  std::vector<std::atomic<Slab*>> chunks_;
  size_t next_ = 0;  // The chunk after the slab that was placed last.
};

/// Returns the index of the device whose range contains `address`; -1 if there is none.
int device_index_of(const void* address) noexcept;

}  // namespace ocl::runtime
