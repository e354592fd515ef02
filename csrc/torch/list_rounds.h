// csrc/torch/list_rounds.h: runs an in-place op over lists of tensors (_foreach_add_) whose entries share memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ocl::aten {

/// Calls the op several times, so that in each call no entry shares memory with an entry that is written. Keeps the order of
/// the lists, so a later entry sees what an earlier one wrote, as on the CPU. Returns false and does nothing if no entries
/// share memory, or if the op is no in-place op over lists.
bool run_overlapping_lists(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ocl::aten
