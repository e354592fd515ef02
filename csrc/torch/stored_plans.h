// csrc/torch/stored_plans.h: stores the result of compiling an eager op in the cache. A later process reads it instead
// of compiling.
#pragma once

#include <optional>
#include <string>

#include "csrc/torch/eager.h"

namespace ocl::aten {

std::string entry_of(const CompiledOp& compiled);

/// Makes the plan of an entry, for calls like this one on `device`. Its graph is scheduled again, so that current options and
/// measured choices apply. The kernels' binaries are in the cache too. Returns nullopt and logs a message if the entry is
/// damaged. Throws errors that occur while the plan is built.
std::optional<CompiledOp> compiled_from(const std::string& entry, const c10::OperatorHandle& op,
                                        const EagerArguments& arguments, int device, const EagerContext& context);

}  // namespace ocl::aten
