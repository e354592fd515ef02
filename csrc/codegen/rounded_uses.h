// csrc/codegen/rounded_uses.h: which values are only used rounded to 16 bits, so that shorter functions may compute them.
#pragma once

#include <optional>

#include "csrc/codegen/names.h"
#include "csrc/schedule/schedule.h"

namespace ocl::codegen {

/// Returns the 16-bit type to which all uses round the value of op number `op` of a node, nullopt if there is a use of another
/// kind. A use is a cast, a store, or a product whose own uses round. A buffer that has no memory is followed to the nodes
/// that load it.
std::optional<ir::DType> rounded_to(const schedule::Schedule& schedule, ir::NodeId node, int op);
/// True for constants that float16 and bfloat16 hold: infinities, whole numbers up to 256, eighths up to 32.
bool fits_halves(const ir::Scalar& constant);
/// True if the op is a relu, or a minimum or maximum with a constant, and all uses of its result round that to `type`. Then its
/// operand need not be rounded to `type` before.
bool may_round_later(const schedule::Schedule& schedule, ir::NodeId node, int op, ir::DType type);

}  // namespace ocl::codegen
