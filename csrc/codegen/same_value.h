// csrc/codegen/same_value.h: which ops of a group's nodes have equal values, found by their trees.
#pragma once

#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::codegen {

/// Whether op `i` of `a` and op `j` of `b`, over the same loops, are the same function of the same loads. What they load must
/// not change in between. False where it cannot be told.
bool same_value(const ir::Node& a, int i, const ir::Node& b, int j);

/// The ops of `node` that are e^(x - m): x is the element that the node `softmax` reduces, m the largest, which it stores.
std::vector<int> exponentials(const ir::Graph& graph, const ir::Node& softmax, const ir::Node& node);

}  // namespace ocl::codegen
