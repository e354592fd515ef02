// csrc/ir/verify.h: what a graph must satisfy before and after scheduling.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::ir {

enum class Level : uint8_t {
  kGraph,      // holds for any graph
  kScheduled,  // and every buffer has strides
};
/// Throws InternalError that names the node and the rule it breaks, with the graph's text.
void verify(const Graph& graph, Level level);

}  // namespace ocl::ir
