// csrc/torch/cuda_exchange.h: the same memory as an ocl tensor and as a CUDA tensor.
#pragma once

#include <ATen/ATen.h>
#include <ATen/dlpack.h>

#include <cstdint>
#include <optional>

namespace ocl::aten {

/// True if CUDA can use the memory of an ocl tensor. A tensor without elements has no memory, and counts as shared.
bool is_shared_with_cuda(const at::Tensor& tensor);

/// Returns the memory of an ocl tensor as a DLPack tensor of CUDA. The caller calls its deleter. First waits for the work of
/// the current stream of the tensor's device. The memory lives until the deleter was called. The deleter waits for CUDA, so
/// that OpenCL can reuse the memory.
DLManagedTensor* export_to_cuda(const at::Tensor& tensor);

/// Returns the ocl device that is the same GPU as CUDA's device `cuda_index`. Throws kUnsupported if there is none.
int ocl_device_of_cuda(int cuda_index);

/// Returns an ocl tensor over the memory at a CUDA address, with the sizes, strides and type of `owner`. The result keeps
/// `owner` alive. nullopt if no tensor of the device `ocl_index` has memory at this address.
std::optional<at::Tensor> ocl_view_of_cuda(int ocl_index, uint64_t cuda_address, const at::Tensor& owner);

}  // namespace ocl::aten
