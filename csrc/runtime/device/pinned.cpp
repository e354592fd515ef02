// csrc/runtime/device/pinned.cpp: allocates pinned host memory; see pinned.h.
#include "csrc/runtime/device/pinned.h"

#include <new>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::runtime {

PinnedBlock::PinnedBlock(size_t bytes, Device* device) : bytes_(bytes) {
  if (device != nullptr && !device->caps().unified) {
    cl_int status = CL_SUCCESS;
    MemHandle mem(clCreateBuffer(device->context(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &status));
    if (status == CL_SUCCESS) {
      address_ = static_cast<char*>(clEnqueueMapBuffer(device->queue().get(), mem.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                                       bytes, 0, nullptr, nullptr, &status));
      if (status == CL_SUCCESS)
        mapped_ = std::move(mem);
      else
        address_ = nullptr;
    }
  }
  if (address_ == nullptr) address_ = static_cast<char*>(::operator new(bytes, std::align_val_t{kPageBytes}, std::nothrow));
  if (address_ == nullptr)
    fail(ErrorKind::kOutOfMemory, "no host memory left for " + std::to_string(bytes) +
                                      " bytes of pinned memory.\n  do: free pinned tensors, or leave out pin_memory");
}

PinnedBlock::~PinnedBlock() {
  // Releasing the buffer releases its mapping.
  if (!mapped_) ::operator delete(address_, std::align_val_t{kPageBytes});
}

}  // namespace ocl::runtime
