// csrc/schedule/pass.h: the type of a pass, and functions that several passes share.
#pragma once

#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

/// A pass changes the schedule. The pipeline times and verifies it.
using PassFunction = void (*)(Schedule&, const Caps&);

/// Replaces the list of nodes. `nodes[i]` was node `from[i]` of the old list, or is new (kNone). Launches are
/// renumbered.
void replace_nodes(Schedule& schedule, std::vector<ir::Node> nodes, const std::vector<ir::NodeId>& from);
/// Removes nodes whose results are not read later, not returned and not the caller's. Also removes stores of Map nodes
/// that nothing needs.
void drop_dead_nodes(Schedule& schedule);
/// The buffers that the caller sees: outputs and inputs. A store into an input is a mutation.
std::vector<bool> visible_buffers(const ir::Graph& graph);

}  // namespace ocl::schedule
