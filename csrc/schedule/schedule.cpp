// csrc/schedule/schedule.cpp: see schedule.h.
#include "csrc/schedule/schedule.h"

#include <algorithm>

namespace ocl::schedule {

std::vector<ir::NodeId> Group::nodes() const {
  std::vector<ir::NodeId> result;
  if (main != ir::kNone) result.push_back(main);
  if (call != ir::kNone) result.push_back(call);
  for (const Phase& phase : phases) result.insert(result.end(), phase.nodes.begin(), phase.nodes.end());
  result.insert(result.end(), epilogue.begin(), epilogue.end());
  for (const Group& member : members) {
    const std::vector<ir::NodeId> inner = member.nodes();
    result.insert(result.end(), inner.begin(), inner.end());
  }
  if (phases.size() <= 1) std::sort(result.begin(), result.end());
  return result;
}

bool is_alone(const Schedule& schedule, ir::NodeId node) {
  const ir::Origin& origin = schedule.graph.nodes[node].origin;
  return !schedule.alone.empty() && schedule.alone.contains({origin.op, origin.source});
}

Caps with_granted_items(const Schedule& schedule, const std::vector<ir::NodeId>& nodes, Caps caps) {
  for (const ir::NodeId node : nodes) {
    const ir::Origin& origin = schedule.graph.nodes[node].origin;
    const auto found = schedule.most_items.find({origin.op, origin.source});
    if (found != schedule.most_items.end()) caps.max_group_size = std::min(caps.max_group_size, found->second);
  }
  return caps;
}

}  // namespace ocl::schedule
