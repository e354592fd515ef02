// csrc/torch/user_launch.h: launches a user's kernel on torch tensors.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/exec/user_kernel.h"

namespace ocl::aten {

struct TensorSlot {
  int index = 0;  // Position among the tensors of a call.
  bool written = false;
};
using LaunchArgument = std::variant<TensorSlot, std::string, exec::LocalMemory>;

/// A launch whose numbers and sizes are known. Only its tensors differ from call to call.
struct UserLaunch {
  std::shared_ptr<exec::UserKernel> kernel;
  std::string op;  // "mylib::saxpy"
  std::vector<LaunchArgument> arguments;
  std::array<size_t, 3> global{1, 1, 1}, local{0, 0, 0};
  // Strides in elements that an operand must have. A tensor with other strides is copied before the launch.
  std::vector<std::vector<int64_t>> strides;
  std::vector<int64_t> result_bytes;
  std::vector<std::pair<int, int>> copies;  // (result, operand): the result starts as a copy of the operand.
};

/// Enqueues the launch on the current stream of the kernel's device. A result that is undefined gets memory that is freed
/// afterwards.
void run(const UserLaunch& launch, const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& results);

}  // namespace ocl::aten
