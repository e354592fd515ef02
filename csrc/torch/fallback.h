// csrc/torch/fallback.h: what ran on the CPU instead, by op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <map>
#include <string>

namespace ocl::aten {

/// Runs the op compiled if it can be, else on the CPU, counted. Takes the arguments from the stack and leaves the results
/// there.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();
void set_fallback_warnings(bool on);
/// Whether an op that would run on the CPU throws a FallbackError instead (the option `fallback`).
void set_fallback_forbidden(bool on);

}  // namespace ocl::aten
