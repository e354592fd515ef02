// csrc/exec/launch_info.h: describes a launch in words and numbers, for profilers and records.
#pragma once

#include "csrc/exec/plan.h"

namespace ocl::exec {

/// Returns the value of the expression for the plan's current sizes.
int64_t value_of(const Plan& plan, const ir::IndexExpr& expr);

/// Returns what the launch computes for the plan's current sizes. Call it after bind_symbols.
runtime::LaunchInfoPtr launch_info(const Plan& plan, const Launch& launch);

}  // namespace ocl::exec
