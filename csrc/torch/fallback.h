// csrc/torch/fallback.h: runs ops without a native kernel, and counts the ops that ran on the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <map>
#include <string>

namespace ocl::aten {

/// Runs the op compiled if possible, otherwise on the CPU, which is counted. Replaces the arguments on the stack by the
/// results.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Counts a copy of `src` within its device that goes through the host, under the name `op`. FallbackError if that is
/// forbidden.
void count_host_copy(const std::string& op, const at::Tensor& src);

std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();
void set_fallback_warnings(bool on);
/// If on, an op that would run on the CPU throws FallbackError (option `fallback`).
void set_fallback_forbidden(bool on);

}  // namespace ocl::aten
