// csrc/schedule/dependence.h: who must precede whom: read after write, write after read, write after write.
#pragma once

#include <vector>

#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

/// Edges between nodes (or groups): `after[i]` must follow i, `before[i]` must precede it. Ascending, without duplicates.
struct Dependences {
  std::vector<std::vector<int>> before, after;
  void add(int first, int second);
};

/// Buffers that a node touches in memory: its own and those of its template launch (packed weights).
std::vector<ir::BufferId> buffers_read(const Schedule& schedule, ir::NodeId node);

/// Whether two nodes store to regions of a buffer that cannot overlap: in some dimension all coordinates of one lie below the
/// other's.
bool writes_apart(const ir::Graph& graph, const ir::Node& a, const ir::Node& b, ir::BufferId buffer);

/// Dependences of the graph's nodes in program order. Writers of provably disjoint parts of a buffer (pieces of a
/// concatenation) do not depend on each other.
Dependences node_dependences(const Schedule& schedule);
/// The same between groups, by their nodes.
Dependences group_dependences(const Schedule& schedule);

/// Per node: whether it reads parameters that nobody writes, directly or through other such nodes, and nothing else. Empty
/// unless such results are kept.
std::vector<bool> nodes_of_parameters(const Schedule& schedule);

/// Whether a path leads from `from` to `to`; `direct`: a single edge counts as well.
bool reaches(const Dependences& dependences, int from, int to, bool direct);

}  // namespace ocl::schedule
