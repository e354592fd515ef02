// csrc/ir/simplify_body.h: rewrites inside one node's body. Used by simplify.cpp.
#pragma once

#include <optional>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Folds constants and trivial ops, merges equal ops and removes dead ops. Renumbers the node's stores and `reduced`
/// accordingly.
void simplify_body(const Graph& graph, Node& node);

/// True if every value of `from` is exactly representable in `to`.
bool is_lossless(DType from, DType to);

/// Returns the value of an op whose operands are constants of dtype `operand`, or nothing. Only ops that every device
/// rounds alike are folded.
std::optional<Scalar> fold(OpCode code, const std::vector<Scalar>& x, DType operand, DType result);

}  // namespace ocl::ir
