// csrc/exec/launch_info.h: describes a launch in words and numbers, for profilers and records.
#pragma once

#include "csrc/exec/run_state.h"

namespace ocl::exec {

/// Returns what launch number `launch` computes for the current sizes. Call it after bind_symbols.
runtime::LaunchInfoPtr launch_info(const RunState& state, size_t launch);

}  // namespace ocl::exec
