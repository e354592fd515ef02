// csrc/runtime/address_range.h: the addresses that stand for a device's memory: reserved, inaccessible, given out in chunks.
//
//   reserved range   | chunk 0 | chunk 1 | chunk 2 | ...     64 MiB of addresses each, not of memory
//   slab             | slab at chunk 0   | slab    |         a slab begins at a chunk
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ocl::runtime {

class Device;
struct Slab;

class AddressRange {
 public:
  static constexpr size_t kChunkBytes = size_t{64} << 20;
  static constexpr size_t kMaxBytes = size_t{1} << 40;  // size of a range

  /// Throws kOutOfMemory where the system has no addresses left.
  explicit AddressRange(Device& device);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  size_t bytes() const { return bytes_; }
  bool contains(uintptr_t address) const noexcept { return address - base_ < bytes_; }
  /// The slab over `address`; nullptr if there is none. Takes no lock.
  Slab* slab_at(uintptr_t address) const noexcept;
  /// Gives the slab `slab->bytes` of free addresses and sets slab->address. False if no range is that large. An address is used
  /// again as late as possible.
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
  size_t next_ = 0;  // chunk after the last slab that was placed
};

/// The device whose range holds `address`; nullptr if none does.
Device* device_of(const void* address) noexcept;

}  // namespace ocl::runtime
