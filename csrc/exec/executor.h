// csrc/exec/executor.h: runs a Plan; the hot path. Enqueues everything and waits for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "csrc/exec/plan.h"

namespace ocl::exec {

/// Runs an eager op in the middle of a plan: operands and results as addresses on the plan's device.
struct CallOperand {
  void* address = nullptr;              // address of element 0 of the buffer
  std::vector<int64_t> sizes, strides;  // elements
  int64_t offset = 0;                   // elements
  ir::DType dtype = ir::DType::kF32;
};
using CallHandler =
    std::function<void(int call, const std::vector<CallOperand>& operands, const std::vector<CallOperand>& results)>;

/// Concrete shape of one tensor of the caller.
struct TensorShape {
  std::vector<int64_t> sizes, strides;  // elements
  int64_t offset = 0;                   // elements
};

/// Evaluates sizes, grids, integer arguments and the memory plan for these symbol values (a no-op if they are the last ones).
/// The caller holds plan.mutex.
void bind_symbols(Plan& plan, const std::vector<int64_t>& symbols);
/// After bind_symbols: the shape of output allocation `index` (whole buffer), and of what output `index` of the graph shows.
TensorShape allocation_shape(const Plan& plan, int index);
TensorShape output_shape(const Plan& plan, int index);

/// Enqueues all launches on `stream`. `inputs` and `outputs` are addresses (null for empty tensors). Takes the arena for that
/// stream from the device's allocator and gives it back at the end: later work of the in-order queue may reuse it.
void run(Plan& plan, const std::vector<void*>& inputs, const std::vector<void*>& outputs, const CallHandler& call, int stream);

/// For `torch-ocl warm`: from now on plans are made, but no kernel of theirs is launched. Results are zeros.
void skip_launches(bool skipped);
bool launches_skipped();

}  // namespace ocl::exec
