// csrc/torch/number_checks.h: numbers that the type of an eager op's tensors cannot hold.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ocl::aten {

/// Raises PyTorch's error if the type cannot hold the number. Kernels would wrap an integer around, or store an infinity.
void check_number(at::ScalarType type, const at::Scalar& number);
/// Does so for the numbers that the op converts to the type of its tensors, and for the range of random integers. The second
/// operand of arithmetic, which PyTorch wraps too, is not checked.
void check_numbers(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace ocl::aten
