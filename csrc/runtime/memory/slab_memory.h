// csrc/runtime/memory/slab_memory.h: creates and frees the device memory of slabs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/runtime/opencl/device_info.h"

namespace ocl::runtime {

class AddressRange;
class CudaDevice;
class Queues;
struct Slab;

class SlabMemory {
 public:
  /// The largest piece of CUDA's memory that is imported. On machines with several H100 or H200, NVIDIA's driver 580 ends the
  /// process when it imports 512 MiB, and imports any number of pieces of 200 MiB (measured: 9.6 GiB in all).
  static constexpr size_t kMostImported = size_t{200} << 20;
  /// The largest block of such a piece. The allocator rounds up.
  static constexpr size_t kMostShared = kMostImported - (size_t{2} << 20);
  SlabMemory(const DeviceInfo& device, Queues& queues);
  /// Gives a new slab its memory: slab.mem, and slab.host or slab.cuda where it has them. Returns false and sets `problem` if
  /// that fails. Throws kUnsupported if the device cannot have memory of this kind.
  bool create(Slab& slab, std::string& problem);
  void release(Slab& slab) noexcept;
  /// Number of release() calls. A later buffer may have the handle of a released one.
  uint64_t released() const noexcept { return released_; }
  /// Gives new slabs of all pools memory that CUDA can use too if they are small enough, from now on and as long as the drivers
  /// allow it.
  void prefer_cuda() { cuda_preferred_ = true; }
  bool cuda_is_preferred() const { return cuda_preferred_; }
  /// Lets another GPU use what CUDA can use of the slabs in `range` and of new slabs.
  void allow(const CudaDevice& peer, const AddressRange& range);

 private:
  bool create_buffer(Slab& slab, std::string& problem);
  bool create_shared(Slab& slab, std::string& problem);
  bool create_preferred(Slab& slab, std::string& problem);
  bool commit(const Slab& slab, std::string& problem);
  const DeviceInfo& device_;
  Queues& queues_;
  size_t plain_bytes_ = 0;  // CL_DEVICE_MAX_MEM_ALLOC_SIZE. Larger buffers need a flag.
  bool on_host_ = false;    // True if buffers are made over host memory.
  bool cuda_preferred_ = false;
  std::vector<const CudaDevice*> peers_;
  std::atomic<uint64_t> released_{0};
};

}  // namespace ocl::runtime
