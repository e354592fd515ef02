// csrc/ir/simplify_body.h: rewrites inside one node's body. Used by simplify.cpp.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Folds constants and trivial ops, merges equal ops and removes dead ops. Renumbers the node's stores and `reduced`
/// accordingly.
void simplify_body(const Graph& graph, Node& node);

/// True if every value of `from` is exactly representable in `to`.
bool is_lossless(DType from, DType to);

}  // namespace ocl::ir
