// csrc/runtime/allocator.h: caching, splitting allocator. A pointer is an address in a reserved, inaccessible range that
// maps to (cl_mem, offset): views and pointer arithmetic are right, and a host dereference faults at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "csrc/runtime/address_range.h"
#include "csrc/runtime/cl.h"
#include "csrc/runtime/memory_history.h"
#include "csrc/runtime/memory_stats.h"

namespace ocl::runtime {

class Device;
class Queue;

/// Where an address lies: buffer, byte offset in it, and what is left of the allocation behind it.
struct Location {
  cl_mem mem = nullptr;
  size_t offset_bytes = 0;
  size_t remaining_bytes = 0;
  // The same byte in host memory, on CPU devices whose buffers are host memory; else nullptr. It is current after finish() of
  // the queues that work on it, no sooner: a blocking write may return before the data is there.
  std::byte* host = nullptr;
  // The contents of the block: wrote() and a new allocation give another number.
  uint64_t version = 0;
  int writer = 0;  // the stream whose queue has the work that made this version
};

/// Something made from the contents of an allocation, which is of no use once that is freed.
class Dependent {
 public:
  virtual ~Dependent() = default;
  virtual void storage_freed() noexcept = 0;
};

/// Carves blocks from large slabs (one cl_mem each), so that most tensors share few cl_mems.
///
/// A block belongs to the stream it was allocated for. Freed, it may be handed out at once to the same stream, whose in-order
/// queue has the earlier work ahead of the new work. Other streams that use the block are recorded (use, record_stream); a
/// freed block then waits until what they have enqueued by then is done. Nothing else orders one queue behind another. One past
/// the end of an allocation still belongs to it (remaining_bytes is 0 there), never to its neighbour. Alignment is the device's
/// base alignment, 128 bytes or more. Thread-safe.
class Allocator {
 public:
  explicit Allocator(Device& device);
  ~Allocator();
  /// Never null for bytes > 0 (null for 0). Contents are undefined. On failure waits, frees cached slabs, retries once, then
  /// throws kOutOfMemory with sizes and what to try.
  void* allocate(size_t bytes, int stream = 0);
  /// Calls the device only for a block that several streams use, and never after a fork. nullptr and foreign addresses are
  /// ignored.
  void free(void* address) noexcept;
  /// Throws InternalError on an address that is not ours or was freed; an address inside a block is fine.
  Location resolve(const void* address) const;
  /// The same, for work that is about to be enqueued on `stream`.
  Location use(const void* address, int stream);
  bool owns(const void* address) const noexcept;
  /// Work that changes the block at `address` was enqueued on `stream`: its version is another one.
  void wrote(const void* address, int stream);
  /// `dependent` hears when the block at `address` is freed, if it still lives then.
  void attach(const void* address, const std::shared_ptr<Dependent>& dependent);
  /// The block that holds `address` is used by `stream` too: once freed, it is not handed out before what that stream has
  /// enqueued by then is done.
  void record_stream(const void* address, int stream);
  /// Waits for the device and gives cached slabs back to it.
  void empty_cache();
  MemoryStats stats() const;
  void reset_peaks();
  void reset_accumulated();
  /// Every segment and block, and the recorded events.
  MemorySnapshot snapshot();
  /// Forgets the recorded events.
  void clear_history();
  /// What this process may reserve of the device's memory, from 0 to 1. More is out of memory.
  void set_fraction(double fraction);
  double fraction() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ocl::runtime
