// csrc/exec/late_memory.h: when a plan first writes a result, when it last uses an input that it may overwrite, and which
// intermediate results have memory of their own.
#pragma once

#include <functional>
#include <vector>

#include "csrc/exec/plan.h"
#include "csrc/schedule/memory_plan.h"

namespace ocl::exec {

/// The caller's side of a run that holds little memory: results are allocated when a step first writes them, and donated inputs
/// are given back after the last step that uses them.
struct LateMemory {
  std::function<void*(int output)> allocate;  // Returns the address, null for a tensor without elements.
  std::function<void(int input)> release;
};

/// For each step: the results that it is the first to write, and the inputs that no later step uses.
struct MemoryTimes {
  std::vector<std::vector<int>> first_writes, last_uses;
  /// True if a run can take LateMemory: the plan writes no inputs but donated ones and words, so that a call that fails for
  /// want of memory changes nothing that the caller still has, and has no eager ops, whose operands may live longer.
  bool possible = false;
  bool gives_back = false;  // There are donated inputs.
  size_t words = 0;  // The number of written inputs with one int32. They must be where kernels note mistakes of the user's.
};

MemoryTimes memory_times(const Plan& plan);

/// The least size in bytes of an intermediate result with a block of its own. Smaller ones would save little for the time that
/// the allocator takes.
constexpr int64_t kLeastBlock = 1 << 20;

/// The intermediate results of a run with LateMemory. The large ones are blocks of the allocator, from the first to the last
/// step that uses them, so they take the memory of inputs that have been given back. The arena, which is held from the start to
/// the end, has the others.
struct LateArena {
  schedule::MemoryPlan arena;
  std::vector<int64_t> block_bytes;                // For each interval of the plan. 0: it is in the arena.
  std::vector<std::vector<int>> begin_at, end_at;  // For each step, the intervals with blocks that begin or end there.
};

/// `intervals`: those of the plan, with their sizes in a call. `steps`: the number of steps.
LateArena late_arena(std::vector<schedule::Interval> intervals, size_t steps, int64_t alignment);

}  // namespace ocl::exec
