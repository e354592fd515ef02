// csrc/torch/list_rounds.h: an in-place op over lists of tensors (_foreach_add_) whose entries share memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ocl::aten {

/// Calls the op several times, each with entries that share no memory with one that is written, in the order of the lists: a
/// later entry sees what an earlier one wrote, as on the CPU. False, and nothing is done, if the op is another or no entries
/// share memory.
bool ran_in_rounds(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ocl::aten
