// csrc/runtime/allocator.h: caching, splitting allocator. A pointer is an address in a reserved, inaccessible range that
// maps to (cl_mem, offset): views and pointer arithmetic are right, and a host dereference faults at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Device;

/// Where an address lies: buffer, byte offset in it, and what is left of the allocation behind it.
struct Location {
  cl_mem mem = nullptr;
  size_t offset_bytes = 0;
  size_t remaining_bytes = 0;
};

/// Bytes; `peak` counts since the last reset. Read by torch.ocl.memory_*.
struct MemoryStats {
  int64_t allocated = 0, allocated_peak = 0;  // handed out
  int64_t reserved = 0, reserved_peak = 0;    // held in slabs
  int64_t allocations = 0, frees = 0, retries = 0, failures = 0;
};

/// Carves blocks from large slabs (one cl_mem each). In-order reuse: a freed block may be handed out again at once, since
/// all work of a device's default stream is in one in-order queue; `record_stream` delays that for other streams.
class Allocator {
 public:
  explicit Allocator(Device& device);
  ~Allocator();
  /// Never null for bytes > 0. On failure frees cached slabs, waits, retries once, then throws kOutOfMemory with sizes.
  void* allocate(size_t bytes);
  void free(void* address) noexcept;
  /// Throws InternalError on an address that is not ours; an address inside a block is fine.
  Location resolve(const void* address) const;
  bool owns(const void* address) const noexcept;
  void empty_cache();
  MemoryStats stats() const;
  void reset_peaks();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The device whose reserved range holds `address`; nullptr if none does.
Device* device_of(const void* address) noexcept;

}  // namespace ocl::runtime
