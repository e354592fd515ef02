// csrc/torch/cpu_run.h: runs ops on the CPU, on copies of their operands, and copies their results back.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ocl::aten {

/// Replaces the arguments on the stack by the results. Random ops draw from a CPU generator seeded by our generator's (seed,
/// offset), so they are reproducible. Random ops of other libraries that take no generator draw from the CPU's default
/// generator.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// True if the op writes to an expanded tensor. PyTorch lets some ops do so, and warns that it may stop it. The result depends
/// on the order of the writes, so only the CPU can compute it.
bool writes_into_expanded(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
/// Runs such an op.
void write_into_expanded(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace ocl::aten
