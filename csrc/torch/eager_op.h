// csrc/torch/eager_op.h: runs an op that has no native kernel. Every such op starts here.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

namespace ocl::aten {

/// Runs the op compiled if possible (eager.h), otherwise by `on_cpu`, which is counted (refusals.h). Both replace the arguments
/// on the stack by the results.
void run_eager_op(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::function_ref<void()> on_cpu);
/// The same, with run_on_cpu of cpu_run.h.
void run_eager_op(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ocl::aten
