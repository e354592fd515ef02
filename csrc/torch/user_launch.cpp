// csrc/torch/user_launch.cpp: see user_launch.h.
#include "csrc/torch/user_launch.h"

#include "csrc/torch/device_state.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {
namespace {

bool has_strides(const at::Tensor& tensor, const std::vector<int64_t>& strides) {
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) != 1 && tensor.stride(d) != strides[d]) return false;
  return true;
}

}  // namespace

void run(const UserLaunch& launch, const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& results) {
  runtime::Device& device = launch.kernel->device();
  const int stream = current_stream(device.index());
  std::vector<at::Tensor> tensors = operands;
  for (size_t i = 0; i < launch.strides.size() && i < operands.size(); ++i) {
    const std::vector<int64_t>& strides = launch.strides[i];
    at::Tensor& tensor = tensors[i];
    if (static_cast<size_t>(tensor.dim()) != strides.size() || tensor.numel() == 0 || has_strides(tensor, strides)) continue;
    const at::Tensor copied = empty_strided_ocl(tensor.sizes(), strides, tensor.scalar_type(), device.index());
    copied.copy_(tensor);
    tensor = copied;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    tensors.push_back(results[i]);
    if (!results[i].defined()) tensors.back() = empty_strided_ocl({launch.result_bytes.at(i)}, {1}, at::kByte, device.index());
  }
  for (const auto& [result, operand] : launch.copies)
    if (results.at(static_cast<size_t>(result)).defined()) results[result].copy_(tensors.at(static_cast<size_t>(operand)));
  std::vector<exec::UserArgument> arguments;
  arguments.reserve(launch.arguments.size());
  std::vector<const void*> written;
  for (const LaunchArgument& argument : launch.arguments) {
    if (const auto* slot = std::get_if<TensorSlot>(&argument)) {
      const at::Tensor& tensor = tensors.at(static_cast<size_t>(slot->index));
      runtime::Location at = location(tensor);
      at.remaining_bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
      arguments.emplace_back(at);
      if (slot->written && tensor.numel() > 0) written.push_back(tensor.const_data_ptr());
    } else if (const auto* value = std::get_if<std::string>(&argument)) {
      arguments.emplace_back(*value);
    } else {
      arguments.emplace_back(std::get<exec::LocalMemory>(argument));
    }
  }
  launch.kernel->launch(stream, arguments, launch.global, launch.local, launch.op);
  for (const void* address : written) device.allocator().wrote(address, stream);
}

}  // namespace ocl::aten
