// csrc/torch/eager_memory.h: written tensors of an eager op that share memory with its other arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "csrc/torch/eager_key.h"

namespace ocl::aten {

/// True if no written tensor partly overlaps another argument, and none occurs twice in a list. Throws torch's error
/// for a tensor that overlaps itself.
bool memory_is_clear(const c10::OperatorHandle& op, const EagerArguments& arguments);

/// Replaces each argument that the op reads and that shares memory with `out` by a copy, because `out` is about to be
/// resized: torch.sum(a, 0, out=a) sums the old elements.
void keep_read_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack, const at::Tensor& out);

/// Replaces each tensor that the op reads and that overlaps a written one by a copy, so that the op reads the old elements:
/// work-items run in no order. Throws torch's error where TensorIterator refuses a part of the written tensor as operand.
void separate_operands(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace ocl::aten
