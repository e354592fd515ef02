// csrc/schedule/dependence.h: the order that nodes must keep: read after write, write after read, write after write.
#pragma once

#include <set>
#include <vector>

#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

/// Edges between nodes or groups. All of `after[i]` must follow i; all of `before[i]` must precede i. The lists are
/// ascending and have no duplicates.
struct Dependences {
  std::vector<std::vector<int>> before, after;
  void add(int first, int second);
};

/// Returns the buffers that a node reads from memory. For a template they are the inputs of its launch, such as packed weights.
std::vector<ir::BufferId> buffers_read(const Schedule& schedule, ir::NodeId node);

/// The nodes that write and read each buffer, in program order.
struct Accesses {
  std::vector<std::vector<ir::NodeId>> writers, readers;
  explicit Accesses(const Schedule& schedule);
};

/// Returns the nodes of a group for one who evaluates them. Before each node come the nodes that compute its operands and are
/// in no group, because templates read copies of their results only.
std::vector<ir::NodeId> nodes_to_evaluate(const Schedule& schedule, const Group& group);

/// True if two nodes store to regions of a buffer that provably do not overlap: in some dimension, all coordinates of
/// one node are below those of the other.
bool writes_disjoint(const ir::Graph& graph, const ir::Node& a, const ir::Node& b, ir::BufferId buffer);

/// Returns the dependences of the graph's nodes in program order. Nodes that write provably disjoint regions of a
/// buffer, as in a concatenation, do not depend on each other.
Dependences node_dependences(const Schedule& schedule);
/// Returns the dependences between groups, which follow from the dependences of their nodes.
Dependences group_dependences(const Schedule& schedule);

/// Returns, for each node, the calls with `waits_for` that must run before it. The list is empty if the graph has no such call.
/// `nodes` are the dependences of the nodes.
std::vector<std::set<ir::NodeId>> waits_before(const Schedule& schedule, const Dependences& nodes);

/// Returns, for each node, whether its results depend only on parameters that no node writes, and on no size of a call.
/// The list is empty if such results are not kept between calls.
std::vector<bool> nodes_of_parameters(const Schedule& schedule);

/// True if a path leads from `from` to `to`. direct: true if a path of a single edge counts, too.
bool reaches(const Dependences& dependences, int from, int to, bool direct);

}  // namespace ocl::schedule
