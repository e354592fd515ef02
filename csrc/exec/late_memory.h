// csrc/exec/late_memory.h: when a plan first writes a result, and when it last uses an input that it may overwrite.
#pragma once

#include <functional>
#include <vector>

#include "csrc/exec/plan.h"

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
  /// True if a run can take LateMemory: the plan overwrites donated inputs, so that a call that fails cannot be repeated
  /// anyway, and has no eager ops, whose operands may live longer.
  bool useful = false;
};

MemoryTimes memory_times(const Plan& plan);

}  // namespace ocl::exec
