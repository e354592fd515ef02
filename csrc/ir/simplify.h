// csrc/ir/simplify.h: simplification of a whole graph.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Constant folding, common subexpressions, casts of casts, dead ops inside bodies, dead nodes. Returns whether it changed.
bool simplify(Graph& graph);

}  // namespace ocl::ir
