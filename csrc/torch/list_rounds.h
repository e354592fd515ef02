// csrc/torch/list_rounds.h: runs an in-place op over lists of tensors (_foreach_add_) whose entries share memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ocl::aten {

/// Calls the op several times. In each call, no entry shares memory with one that is written. The order of the lists is
/// kept, so a later entry sees what an earlier one wrote, as on the CPU. Returns false and does nothing if no entries
/// share memory, or for other ops.
bool run_overlapping_lists(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ocl::aten
