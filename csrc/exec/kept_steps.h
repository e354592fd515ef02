// csrc/exec/kept_steps.h: which steps of a plan depend on parameters alone, and give the same in each call.
#pragma once

#include "csrc/exec/plan.h"

namespace ocl::exec {

/// Marks the steps of a new plan that read only parameters that no step writes, and no size of a call, and moves their
/// results out of the arena.
void mark_kept(Plan& plan);

}  // namespace ocl::exec
