// csrc/codegen/same_value.h: finds ops that compute the same value within the nodes of a group.
#pragma once

#include <vector>

#include "csrc/codegen/names.h"

namespace ocl::codegen {

/// True if op `i` of `a` and op `j` of `b` are provably the same function of the same loads, over the same loops. The
/// loaded memory must not change in between.
bool same_value(const ir::Node& a, int i, const ir::Node& b, int j);

/// The ops of `node` that are equal to exp(x - m), where x is the element that the node `softmax` reduces, and m is the
/// maximum that it stores.
std::vector<int> exponentials(const ir::Graph& graph, const ir::Node& softmax, const ir::Node& node);

}  // namespace ocl::codegen
