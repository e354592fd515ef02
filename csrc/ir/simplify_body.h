// csrc/ir/simplify_body.h: rewrites inside one node's body, for simplify.cpp.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Folds constants, casts and trivial ops, merges equal ops, drops ops nobody uses. The node's stores and `reduced` follow.
void simplify_body(const Graph& graph, Node& node);

/// Whether every value of `from` has the same value in `to`.
bool is_lossless(DType from, DType to);

}  // namespace ocl::ir
