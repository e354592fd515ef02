// csrc/runtime/memory/allocator.h: a caching allocator. A pointer is an address in a reserved range that cannot be read or
// written, and maps to (cl_mem, offset). Views and pointer arithmetic work on it, and a host that dereferences it faults at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/runtime/opencl/device_info.h"
#include "csrc/runtime/record/location.h"
#include "csrc/runtime/record/memory_history.h"
#include "csrc/runtime/record/memory_stats.h"

namespace ocl::runtime {

class CudaDevice;
class Queues;

/// Cuts blocks from large slabs, each of which is one cl_mem. Most tensors therefore share a few cl_mems.
///
/// A block belongs to the stream it was allocated for. When freed, it can be reused at once by the same stream, because
/// the in-order queue runs the earlier work first. Other streams that use the block are recorded (use, record_stream).
/// Such a block is reused only when the work that they had enqueued when it was freed is done. Queues are not ordered
/// otherwise.
///
/// An address one past the end of an allocation still belongs to it (remaining_bytes is 0 there), never to its
/// neighbour. Blocks have the device's base alignment, at least 128 bytes. Thread-safe.
class Allocator {
 public:
  Allocator(const DeviceInfo& device, Queues& queues);
  ~Allocator();
  /// Allocates `bytes` bytes of undefined contents. Returns nullptr only for 0 bytes. If the device is full, waits for
  /// it, frees cached slabs and tries again. Throws kOutOfMemory with sizes and advice if that fails, and kUnsupported if
  /// the device shares no memory with CUDA.
  void* allocate(size_t bytes, int stream = 0, Sharing sharing = Sharing::kNone);
  /// Returns an address for the first `bytes` bytes of a buffer that the program made in the device's context, until free().
  /// The buffer is retained, not copied. Throws kOutOfMemory if no addresses are left.
  void* adopt(cl_mem memory, size_t bytes);
  /// Frees the allocation at `address`. nullptr and unknown addresses are ignored. Calls the device only for a block
  /// that several streams use, and never after a fork.
  void free(void* address) noexcept;
  /// Returns the memory at an address, which may be inside a block. InternalError if the address is unknown or freed.
  Location resolve(const void* address) const;
  /// Resolves an address for work that is about to be enqueued on `stream`, and records the stream as a user of the
  /// block.
  Location use(const void* address, int stream);
  /// Calls use() for each address. A null address gets an empty location.
  std::vector<Location> use(const std::vector<void*>& addresses, int stream);
  bool owns(const void* address) const noexcept;
  /// Creates new memory so that CUDA can use it too. Slabs made before serve large requests only where nothing else can. Memory
  /// of OpenCL alone is used, with a warning, if the drivers cannot share it.
  void prefer_cuda();
  /// Lets another GPU use the memory that CUDA can use, now and in future slabs. Throws kUnsupported if it cannot.
  void allow(const CudaDevice& peer);
  /// Number of slabs that were given back to the driver so far. A kernel must get an argument again if this number has changed
  /// since, even if the buffer's handle is the same.
  uint64_t slabs_released() const noexcept;
  /// Returns CUDA's address of the byte at `address`, an address of a live allocation. 0 if CUDA cannot use this memory.
  uint64_t cuda_address(const void* address) const;
  /// Returns the address of a byte of a live allocation that has this CUDA address. nullptr if there is none.
  void* address_of_cuda(uint64_t cuda_address) const;
  /// Call when CUDA may write to the block from now on. Its contents then have a new version whenever they are used.
  void expect_outside_writes(const void* address);
  /// Call when work that changes the block has been enqueued on `stream`. Gives the block a new version.
  void wrote(const void* address, int stream);
  /// The same for the addresses at these positions. Null addresses are left out.
  void wrote(const std::vector<void*>& addresses, const std::vector<int>& positions, int stream);
  /// Calls dependent->storage_freed() when the block at `address` is freed, if `dependent` is still alive then.
  void attach(const void* address, const std::shared_ptr<Dependent>& dependent);
  /// Records that `stream` uses the block. After the block is freed, it is not reused until the work is done that `stream` has
  /// enqueued by then.
  void record_stream(const void* address, int stream);
  /// Waits for the device and frees cached slabs.
  void empty_cache();
  MemoryStats stats() const;
  void reset_peaks();
  void reset_accumulated();
  /// Returns every slab and block, and the recorded events.
  MemorySnapshot snapshot();
  /// Deletes the recorded events.
  void clear_history();
  /// Sets the share of the device's memory that this process may reserve, from 0 to 1. A larger allocation fails with
  /// kOutOfMemory.
  void set_fraction(double fraction);
  double fraction() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ocl::runtime
