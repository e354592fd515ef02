// csrc/torch/stored_plans.h: what came of compiling an eager op, as an entry of the cache: a later process reads it and
// compiles nothing.
#pragma once

#include <optional>
#include <string>

#include "csrc/torch/eager.h"

namespace ocl::aten {

std::string entry_of(const CompiledOp& compiled);

/// What an entry says, ready for calls like this one on `device`. The graph in it is scheduled anew, so that the options and
/// measured choices of this moment count; the kernels' binaries are in the cache too. None, with a message in the log, if the
/// entry is damaged. Throws what building a plan throws.
std::optional<CompiledOp> compiled_from(const std::string& entry, const c10::OperatorHandle& op,
                                        const EagerArguments& arguments, int device, const EagerContext& context);

}  // namespace ocl::aten
