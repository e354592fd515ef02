// csrc/schedule/pass.cpp: replaces and removes nodes, and updates what refers to them.
#include "csrc/schedule/pass.h"

#include <algorithm>

#include "csrc/schedule/body.h"

namespace ocl::schedule {

void replace_nodes(Schedule& schedule, std::vector<ir::Node> nodes, const std::vector<ir::NodeId>& from) {
  std::map<ir::NodeId, TemplateLaunch> launches;
  for (size_t i = 0; i < from.size(); ++i) {
    const auto it = schedule.launches.find(from[i]);
    if (from[i] != ir::kNone && it != schedule.launches.end())
      launches.emplace(static_cast<ir::NodeId>(i), std::move(it->second));
  }
  schedule.launches = std::move(launches);
  schedule.graph.nodes = std::move(nodes);
}

std::vector<bool> visible_buffers(const ir::Graph& graph) {
  std::vector<bool> visible(graph.buffers.size(), false);
  for (const ir::Output& output : graph.outputs) visible[output.buffer] = true;
  for (const ir::BufferId buffer : graph.inputs) visible[buffer] = true;
  return visible;
}

void drop_dead_nodes(Schedule& schedule) {
  ir::Graph& graph = schedule.graph;
  std::vector<bool> needed = visible_buffers(graph);
  std::vector<ir::Node> nodes;
  std::vector<ir::NodeId> from;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    ir::Node& node = graph.nodes[i];
    if (is_loop_nest(node)) {
      const size_t stores = node.stores.size();
      std::erase_if(node.stores, [&](const ir::Store& store) { return !needed[store.buffer]; });
      if (node.stores.empty()) continue;
      if (node.stores.size() != stores) tidy(node);
    } else if (node.kind != ir::NodeKind::kCall) {
      const std::vector<ir::BufferId> written = ir::writes(node);
      if (std::none_of(written.begin(), written.end(), [&](ir::BufferId b) { return needed[b]; })) continue;
    }
    for (const ir::BufferId buffer : ir::reads(node)) needed[buffer] = true;
    const auto launch = schedule.launches.find(static_cast<ir::NodeId>(i));
    if (launch != schedule.launches.end())
      for (const TemplateLaunch::Input& input : launch->second.inputs)
        if (input.buffer != ir::kNone) needed[input.buffer] = true;
    nodes.push_back(std::move(node));
    from.push_back(static_cast<ir::NodeId>(i));
  }
  std::reverse(nodes.begin(), nodes.end());
  std::reverse(from.begin(), from.end());
  replace_nodes(schedule, std::move(nodes), from);
}

}  // namespace ocl::schedule
