// csrc/schedule/pass.h: the type of a pass, and functions that several passes share.
#pragma once

#include "csrc/schedule/offer/choices.h"
#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

struct Tunable;

/// What a pass may know besides the schedule.
struct PassContext {
  const Caps& caps;
  const Measured* measured = nullptr;        // Measured choices. Null: there are none.
  std::vector<Tunable>* tunables = nullptr;  // Filled with the problems for which kernels compete. Null: not wanted.
};
/// A pass changes the schedule. The pipeline times and verifies it. Most passes need only the capabilities.
using PassFunction = void (*)(Schedule&, const PassContext&);
template <void (*pass)(Schedule&, const Caps&)>
void with_caps(Schedule& schedule, const PassContext& context) {
  pass(schedule, context.caps);
}

/// Replaces the list of nodes. `nodes[i]` was node `from[i]` of the old list, or is new (kNone). Launches are
/// renumbered.
void replace_nodes(Schedule& schedule, std::vector<ir::Node> nodes, const std::vector<ir::NodeId>& from);
/// Removes nodes whose results are not read later, not returned and not the caller's. Also removes stores of Map nodes
/// that nothing needs.
void drop_dead_nodes(Schedule& schedule);
/// The buffers that the caller sees: outputs and inputs. A store into an input is a mutation.
std::vector<bool> visible_buffers(const ir::Graph& graph);

}  // namespace ocl::schedule
