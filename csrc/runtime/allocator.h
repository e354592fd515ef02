// csrc/runtime/allocator.h: caching, splitting allocator. A pointer is an address in a reserved, inaccessible range that
// maps to (cl_mem, offset): views and pointer arithmetic are right, and a host dereference faults at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Device;

/// Where an address lies: buffer, byte offset in it, and what is left of the allocation behind it.
struct Location {
  cl_mem mem = nullptr;
  size_t offset_bytes = 0;
  size_t remaining_bytes = 0;
  // The same byte in host memory, on CPU devices whose buffers are host memory; else nullptr. It is current after finish() of
  // the queues that work on it, no sooner: a blocking write may return before the data is there.
  std::byte* host = nullptr;
  // Of the block's contents: another number after each wrote() and in each new allocation. Only from resolve().
  uint64_t version = 0;
};

/// Something made from the contents of an allocation, which is of no use once that is freed.
class Dependent {
 public:
  virtual ~Dependent() = default;
  virtual void storage_freed() noexcept = 0;
};

/// Bytes; `peak` counts since the last reset. Read by torch.ocl.memory_*.
struct MemoryStats {
  int64_t allocated = 0, allocated_peak = 0;  // handed out
  int64_t reserved = 0, reserved_peak = 0;    // held in slabs
  int64_t allocations = 0, frees = 0, retries = 0, failures = 0;
};

/// Carves blocks from large slabs (one cl_mem each), so that most tensors share few cl_mems. In-order reuse: a freed block may
/// be handed out again at once, since all work of a device's default stream is in one in-order queue; `record_stream` delays
/// that for other streams. One past the end of an allocation still belongs to it (remaining_bytes is 0 there), never to its
/// neighbour. Alignment is the device's base alignment, 128 bytes or more. Thread-safe.
class Allocator {
 public:
  explicit Allocator(Device& device);
  ~Allocator();
  /// Never null for bytes > 0 (null for 0). Contents are undefined. On failure waits, frees cached slabs, retries once, then
  /// throws kOutOfMemory with sizes and what to try.
  void* allocate(size_t bytes);
  /// Never calls the device, so it is safe after a fork and while Python shuts down. nullptr and foreign addresses are ignored.
  void free(void* address) noexcept;
  /// Throws InternalError on an address that is not ours or was freed; an address inside a block is fine.
  Location resolve(const void* address) const;
  /// For hot paths: no lock and no look-up of the block. `address` must lie in a live allocation; remaining_bytes counts to the
  /// end of the slab. Throws InternalError on an address that lies in no slab.
  Location locate(const void* address) const;
  bool owns(const void* address) const noexcept;
  /// Work that changes the block at `address` was enqueued: its version is another one.
  void wrote(const void* address);
  /// `dependent` hears when the block at `address` is freed, if it still lives then.
  void attach(const void* address, const std::shared_ptr<Dependent>& dependent);
  /// The block that holds `address` is used by `stream` too: once freed, it is not handed out before what that stream has
  /// enqueued by then is done.
  void record_stream(const void* address, int stream);
  /// Waits for the device and gives cached slabs back to it.
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
