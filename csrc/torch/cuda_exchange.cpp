// csrc/torch/cuda_exchange.cpp: gives memory from OpenCL to CUDA and back; see cuda_exchange.h.
#include "csrc/torch/cuda_exchange.h"

#include <ATen/DLConvertor.h>

#include <functional>
#include <string>

#include "csrc/runtime/cuda/cuda_driver.h"
#include "csrc/runtime/queues/event.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {
namespace {

/// Returns a tensor with the memory, sizes and strides of `like` at `address`. `release` runs when the memory is not used
/// any more.
at::Tensor tensor_at(void* address, const at::Tensor& like, int ocl_index, const std::function<void(void*)>& release) {
  const c10::Device device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(ocl_index));
  const auto options = at::TensorOptions().dtype(like.scalar_type()).device(device);
  return at::from_blob(address, like.sizes(), like.strides(), release, options, device);
}

const void* first_byte(const at::Tensor& tensor) { return tensor.const_data_ptr(); }

}  // namespace

bool is_shared_with_cuda(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  return device_at(tensor.device().index()).allocator().cuda_address(first_byte(tensor)) != 0;
}

DLManagedTensor* export_to_cuda(const at::Tensor& tensor) {
  const int index = tensor.device().index();
  runtime::Device& device = device_at(index);
  const runtime::CudaDevice& cuda = runtime::CudaDevice::of(device.info());
  uint64_t address = 0;
  if (tensor.numel() > 0) {
    address = device.allocator().cuda_address(first_byte(tensor));
    OCL_ASSERT(address != 0, "the tensor is in memory that CUDA can use");
    device.allocator().expect_outside_writes(first_byte(tensor));
  }
  runtime::Event(current_queue(index), false).wait();
  const auto release = [kept = tensor, &cuda](void*) mutable {
    if (kept.numel() > 0) cuda.synchronize();
    kept.reset();
  };
  DLManagedTensor* exported = at::toDLPack(tensor_at(const_cast<void*>(first_byte(tensor)), tensor, index, release));
  exported->dl_tensor.device = {kDLCUDA, cuda.index()};
  exported->dl_tensor.data = reinterpret_cast<void*>(address);
  return exported;
}

int ocl_device_of_cuda(int cuda_index) {
  std::string reasons;
  for (int index = 0; index < device_count(); ++index) {
    try {
      if (runtime::CudaDevice::of(device_at(index).info()).index() == cuda_index) return index;
    } catch (const Error& error) {
      reasons += "\n  ocl:" + std::to_string(index) + ": " + error.what();
    }
  }
  fail(ErrorKind::kUnsupported, "no ocl device is the GPU cuda:" + std::to_string(cuda_index) + reasons);
}

std::optional<at::Tensor> ocl_view_of_cuda(int ocl_index, uint64_t cuda_address, const at::Tensor& owner) {
  void* address = device_at(ocl_index).allocator().address_of_cuda(cuda_address);
  if (address == nullptr) return std::nullopt;
  return tensor_at(address, owner, ocl_index, [kept = owner](void*) mutable { kept.reset(); });
}

}  // namespace ocl::aten
