// csrc/schedule/pass.h: what a pass is, and the bookkeeping that several of them share.
#pragma once

#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

/// A pass changes the schedule; the pipeline times, verifies and prints.
using PassFunction = void (*)(Schedule&, const Caps&);

/// Replaces the node list. `nodes[i]` came from node `from[i]` of the old list (kNone: new); launches follow their nodes.
void replace_nodes(Schedule& schedule, std::vector<ir::Node> nodes, const std::vector<ir::NodeId>& from);
/// Drops nodes that write nothing that is read later, returned or the caller's; and stores of Map nodes that nothing needs.
void drop_dead_nodes(Schedule& schedule);
/// Buffers the caller sees: outputs, and inputs (a store into one is a mutation).
std::vector<bool> visible_buffers(const ir::Graph& graph);

}  // namespace ocl::schedule
