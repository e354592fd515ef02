// csrc/torch/plan_runner.h: calls a compiled graph with torch tensors.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "csrc/exec/executor.h"

namespace ocl::aten {

/// An op that runs eagerly in the middle of a plan. It either returns results for the operands, which are then copied to
/// `places`, or writes `places` itself and returns nothing. A place that nothing reads is undefined.
using EagerCall =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& places)>;

/// Enqueues the plan on the current stream of its device, without waiting. Returns one tensor per graph output. `symbols` are
/// the sizes of the graph. `inputs` are the graph's input tensors. Each is on the plan's device, or is a small CPU tensor whose
/// values are uploaded with the call. ConfigError for a tensor with another device or dtype. With `own`, which is null or
/// `inputs`, tensors that the graph may overwrite leave the list after their last use.
/// `fault_words`: the number of inputs in which kernels note mistakes of the user's.
std::vector<at::Tensor> run_plan(exec::Executor& executor, const std::vector<EagerCall>& calls,
                                 const std::vector<int64_t>& symbols, const std::vector<at::Tensor>& inputs,
                                 std::vector<at::Tensor>* own = nullptr, size_t fault_words = 0);

at::ScalarType scalar_type(ir::DType dtype);
ir::DType ir_dtype(at::ScalarType type);  // UnsupportedError if there is none.

}  // namespace ocl::aten
