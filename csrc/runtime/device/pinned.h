// csrc/runtime/device/pinned.h: pinned host memory, which a device transfers directly.
#pragma once

#include <cstddef>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

class Device;

/// A block of host memory. It is memory of the driver (CL_MEM_ALLOC_HOST_PTR) that stays mapped. It is ordinary
/// page-aligned memory if there is no device, if the device shares the host's memory, or if the driver has none.
class PinnedBlock {
 public:
  /// `bytes` must be a multiple of the page size. Throws kOutOfMemory.
  PinnedBlock(size_t bytes, Device* device);
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  char* address() const { return address_; }
  size_t bytes() const { return bytes_; }

  static constexpr size_t kPageBytes = 4096;

 private:
  char* address_ = nullptr;
  size_t bytes_;
  MemHandle mapped_;
};

}  // namespace ocl::runtime
