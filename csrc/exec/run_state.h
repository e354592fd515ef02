// csrc/exec/run_state.h: what a plan's runs change: values for the current sizes, and the arguments that its kernels hold.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/exec/late_memory.h"
#include "csrc/exec/plan.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/runtime/record/history.h"

namespace ocl::exec {

/// The shape of one of the caller's tensors, in numbers.
struct TensorShape {
  std::vector<int64_t> sizes, strides;  // Strides in elements.
  int64_t offset = 0;                   // Offset in elements.
};

/// The kernel of a launch, and the arguments that were set last, so that a call sets only arguments that have changed.
struct LaunchState {
  runtime::KernelHandle kernel;
  // The buffer arguments of the last call:
  struct Bound {
    cl_mem mem = nullptr;
    cl_ulong offset = 0;
  };
  std::vector<Bound> bound;
  std::vector<int64_t> offsets;  // The buffers' offsets in elements, for the current symbol values.
  std::array<size_t, 3> global{1, 1, 1};
  bool empty = false;           // True if a grid dimension is zero, so that there is nothing to launch.
  runtime::LaunchInfoPtr info;  // Describes the launch in recordings. It is made when a recording first needs it.
};

struct RunState {
  explicit RunState(const Plan& of) : plan(of) {}
  /// Makes the next call set all arguments again.
  void forget_arguments();
  const Plan& plan;
  std::vector<LaunchState> launches;
  // The queue whose thread may still work on this state, or null, and its failures when the last run began.
  runtime::Queue* posted_to = nullptr;
  uint64_t failures = 0;
  uint64_t slabs_released = 0;  // The allocator's number when the arguments were set.
  // Values for the size symbols of the last call:
  bool bound = false;
  std::vector<int64_t> symbols;
  schedule::MemoryPlan memory;
  std::optional<LateArena> late;               // Set by the first run with LateMemory.
  int64_t result_bytes = 0;                    // Of all results that a call allocates.
  std::vector<TensorShape> allocation_shapes;  // Shapes of schedule.allocations, as whole buffers.
  std::vector<TensorShape> output_shapes;      // Shapes of the graph's outputs.
};

/// The memory of one run, as addresses on the plan's device. Inputs and outputs without elements are null.
struct RunMemory {
  const std::vector<void*>& inputs;
  const std::vector<void*>& outputs;
  char* arena = nullptr;
  int stream = 0;
};

/// Returns the value of the expression, or of each of them, for the current sizes.
int64_t value_of(const RunState& state, const ir::IndexExpr& expr);
std::vector<int64_t> values_of(const RunState& state, const ir::Shape& exprs);
/// Returns the address of element 0 of a buffer of the plan. Null for a tensor without elements.
char* address_of(const RunState& state, const RunMemory& memory, const BufferSource& source);
/// Returns the number of bytes from the first to the last element of the memory of `source`, for the current sizes.
int64_t extent_bytes(const RunState& state, const BufferSource& source);

}  // namespace ocl::exec
