// csrc/torch/plan_runner.h: one call of a compiled graph on torch tensors.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "csrc/exec/executor.h"

namespace ocl::aten {

/// An aten op run eagerly in the middle of a plan: operands in, results out.
using EagerCall = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Enqueues the plan on the current stream of its device; returns one tensor per graph output and waits for nothing.
/// `symbols` are the graph's sizes; `inputs` its tensors: on the plan's device, or small CPU tensors, whose values are
/// uploaded with the call. Throws ConfigError for a tensor on another device or of another dtype.
std::vector<at::Tensor> run_plan(exec::Plan& plan, const std::vector<EagerCall>& calls, const std::vector<int64_t>& symbols,
                                 const std::vector<at::Tensor>& inputs);

at::ScalarType scalar_type(ir::DType dtype);
ir::DType ir_dtype(at::ScalarType type);  // throws UnsupportedError

}  // namespace ocl::aten
