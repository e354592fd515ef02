// csrc/ir/verify.h: checks a graph before and after scheduling.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

enum class Level : uint8_t {
  kGraph,      // Rules that hold for any graph.
  kScheduled,  // The same rules, and every buffer that a node uses has strides.
};
/// Throws InternalError that names the node and the broken rule, with the graph's text.
void verify(const Graph& graph, Level level);

}  // namespace ocl::ir
