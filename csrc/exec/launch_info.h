// csrc/exec/launch_info.h: a launch in words and numbers, for profilers and records.
#pragma once

#include "csrc/exec/plan.h"

namespace ocl::exec {

/// The expression for the plan's current sizes.
int64_t value_of(const Plan& plan, const ir::IndexExpr& expr);

/// After bind_symbols: what the launch computes, for the current sizes.
runtime::LaunchInfoPtr launch_info(const Plan& plan, const Launch& launch);

}  // namespace ocl::exec
