// csrc/runtime/record/location.h: the plain types of the allocator: where memory is, which kind it is, and who depends on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// The memory at an address: its buffer, the byte offset in it, and the bytes of the allocation from there on.
struct Location {
  cl_mem mem = nullptr;
  size_t offset_bytes = 0;
  size_t remaining_bytes = 0;
  // The same byte in host memory, if the device is a CPU whose buffers are host memory; otherwise nullptr. It is
  // current after finish() of the queues that work on it. A blocking write may return before the data is there.
  std::byte* host = nullptr;
  // Version number of the block's contents. wrote() and a new allocation change it.
  uint64_t version = 0;
  int writer = 0;  // The stream whose queue has the work that made this version.
};

/// Memory that only OpenCL uses, or memory that CUDA can use too.
enum class Sharing : uint8_t { kNone, kCuda };

/// An object derived from the contents of an allocation. It becomes useless when the allocation is freed.
class Dependent {
 public:
  virtual ~Dependent() = default;
  virtual void storage_freed() noexcept = 0;
};

}  // namespace ocl::runtime
