// csrc/runtime/pinned.h: host memory that a device transfers directly.
#pragma once

#include <cstddef>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Device;

/// A block of the driver's own host memory, mapped for good, or ordinary page-aligned memory where there is no device, where
/// the device shares the host's memory, or where the driver has none.
class PinnedBlock {
 public:
  /// `bytes` is a multiple of the page size. Throws kOutOfMemory.
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
