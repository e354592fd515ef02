// csrc/runtime/slab_memory.h: creates and frees the device memory of slabs.
#pragma once

#include <string>

#include "csrc/runtime/device_info.h"

namespace ocl::runtime {

class Queues;
struct Slab;

class SlabMemory {
 public:
  SlabMemory(const DeviceInfo& device, Queues& queues);
  /// Gives a new slab its memory: slab.mem, and slab.host or slab.cuda where it has them. Returns false and sets `problem` if
  /// that fails. Throws kUnsupported if the device cannot have memory of this kind.
  bool create(Slab& slab, std::string& problem);
  void release(Slab& slab) noexcept;
  /// Gives new slabs of all pools memory that CUDA can use too, from now on and as long as the drivers allow it.
  void prefer_cuda() { cuda_preferred_ = true; }

 private:
  bool create_buffer(Slab& slab, std::string& problem);
  bool create_shared(Slab& slab, std::string& problem);
  bool create_preferred(Slab& slab, std::string& problem);
  bool commit(const Slab& slab, std::string& problem);
  const DeviceInfo& device_;
  Queues& queues_;
  bool on_host_ = false;  // True if buffers are made over host memory.
  bool cuda_preferred_ = false;
};

}  // namespace ocl::runtime
