// csrc/exec/executor.h: runs a Plan. This is the hot path: it enqueues everything and waits for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/exec/kept.h"
#include "csrc/exec/late_memory.h"
#include "csrc/exec/observer.h"
#include "csrc/exec/run_state.h"

namespace ocl::exec {

/// An operand or result of an eager op in the middle of a plan, as an address on the plan's device.
struct CallOperand {
  void* address = nullptr;              // Address of element 0 of the buffer.
  std::vector<int64_t> sizes, strides;  // Strides in elements.
  int64_t offset = 0;                   // Offset in elements.
  ir::DType dtype = ir::DType::kF32;
};
using CallHandler =
    std::function<void(int call, const std::vector<CallOperand>& operands, const std::vector<CallOperand>& results)>;

/// A plan and what its runs leave for the next one. Calls hold `mutex`, because a cl_kernel stores its arguments.
struct Executor {
  explicit Executor(std::unique_ptr<const Plan> of);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  const std::unique_ptr<const Plan> plan;
  const MemoryTimes times;
  const size_t enqueue_cost;  // Of its launches, in launches with few buffers.
  std::mutex mutex;
  RunState state;
  std::shared_ptr<Kept> kept;
  std::vector<std::shared_ptr<Observer>> observers;  // Checks that watch every step; usually none.
};

/// Evaluates shapes, grids, integer arguments and the memory plan for the given values of the size symbols. Does nothing if the
/// values are the same as in the last call. The caller holds the mutex.
void bind_symbols(RunState& state, const std::vector<int64_t>& symbols);

/// True if a run with LateMemory is possible and holds less memory: there are donated inputs, or most of the results are
/// written when large intermediate results are no longer needed. `fault_words`: the number of inputs in which kernels note
/// mistakes of the user's.
bool holds_less_late(const Executor& executor, size_t fault_words);

/// Enqueues all launches on `stream`. `inputs` and `outputs` are addresses, null for tensors without elements. The
/// arena is allocated for this call and freed at its end; only later work of the same in-order queue can reuse it. With `late`,
/// which needs executor.times.possible and no observers, `outputs` are null and set when they are allocated.
void run(Executor& executor, const std::vector<void*>& inputs, std::vector<void*>& outputs, const CallHandler& call, int stream,
         const LateMemory* late = nullptr);

/// Sets whether launches are skipped, for `torch-ocl warm`. While they are, plans are made but none of their kernels is
/// launched, and results are zeros.
void skip_launches(bool skipped);
bool launches_skipped();

}  // namespace ocl::exec
