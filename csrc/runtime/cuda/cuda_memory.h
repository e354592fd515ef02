// csrc/runtime/cuda/cuda_memory.h: device memory that OpenCL and CUDA share. CUDA creates it, and OpenCL imports it.
#pragma once

#include <cstddef>

#include "csrc/runtime/cuda/cuda_driver.h"
#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// Memory of one GPU with a CUDA address. A cl_mem over the same bytes can be made of it. Neither API waits for work of the
/// other one: a caller orders them.
class CudaMemory {
 public:
  /// Throws kOutOfMemory if the device is full, and kUnsupported if CUDA refuses for another reason.
  CudaMemory(const CudaDevice& device, size_t bytes);
  /// The memory itself lives until the cl_mems made of it are released, too.
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  CudaAddress address() const { return address_; }
  /// Lets another GPU use the memory. Throws kUnsupported if it cannot.
  void allow(const CudaDevice& peer);
  /// Returns a cl_mem over the first `bytes` bytes. Throws kUnsupported if the OpenCL driver cannot import the memory.
  MemHandle import(cl_context context, size_t bytes) const;

 private:
  void release() noexcept;
  const CudaDevice& device_;
  size_t bytes_ = 0;
  CudaHandle handle_ = 0;
  CudaAddress address_ = 0;
  bool created_ = false, mapped_ = false;
};

}  // namespace ocl::runtime
