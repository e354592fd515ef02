// csrc/ir/simplify.h: simplification of a whole graph.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// Simplifies the graph in place: folds constants, merges equal expressions and nodes, removes redundant casts, dead
/// ops and dead nodes. Returns true if something changed.
bool simplify(Graph& graph);

}  // namespace ocl::ir
