// csrc/torch/stored_plans.h: stores the result of compiling an eager op in the cache. A later process reads it instead
// of compiling.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/torch/eager.h"

namespace ocl::aten {

std::string entry_of(const CompiledOp& compiled);

/// Whether an entry of the cache serves a call, and the compiled op if it does.
struct StoredOp {
  enum class State : uint8_t {
    kServes,
    kOtherCalls,  // Its conditions do not hold for the call.
    kDamaged,
  };
  State state = State::kServes;
  CompiledOp compiled = {};  // Set for kServes.
};

/// Makes the plan of an entry, if it serves this call on `device`. Its graph is scheduled again, so that current options and
/// measured choices apply. The kernels' binaries are in the cache too. Logs a message if the entry is damaged. Throws errors
/// that occur while the plan is built.
StoredOp compiled_from(const std::string& entry, const c10::OperatorHandle& op, const EagerArguments& arguments, int device,
                       const EagerContext& context);

}  // namespace ocl::aten
