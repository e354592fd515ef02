// csrc/schedule/scans_in_place.cpp: pass: lets a scan store into the buffer to which its result would be copied.
#include "csrc/schedule/scans_in_place.h"

#include <algorithm>

namespace ocl::schedule {

namespace {

/// The buffer that a Map copies whole, element by element, to another one of equal sizes. kNone: the node does something else.
BufferId copied_whole(const ir::Graph& graph, const Node& node) {
  if (node.kind != ir::NodeKind::kMap || node.body.ops.size() != 1 || node.stores.size() != 1) return ir::kNone;
  const ir::Op& load = node.body.ops[0];
  const ir::Store& store = node.stores[0];
  if (load.code != ir::OpCode::kLoad || !load.args.empty() || store.mask != ir::kNone || store.mode != ir::StoreMode::kWrite)
    return ir::kNone;
  const ir::Buffer &from = graph.buffers[load.buffer], &to = graph.buffers[store.buffer];
  if (from.dtype != to.dtype || from.sizes != to.sizes || load.index != store.index || node.sizes != to.sizes) return ir::kNone;
  for (size_t d = 0; d < store.index.size(); ++d)
    if (store.index[d] != IndexExpr::loop(static_cast<int>(d)) && !to.sizes[d].is_const(1)) return ir::kNone;
  return load.buffer;
}

bool has(const std::vector<BufferId>& buffers, BufferId buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

/// Returns the nodes whose stores into `buffer` may go to `target`: a scan, and perhaps loops before it that fill what the scan
/// adds to. Nothing else writes or reads the buffer before the copy `last`, or touches the target from the first of them on.
std::vector<ir::NodeId> writers_of(const ir::Graph& graph, BufferId buffer, BufferId target, ir::NodeId last) {
  std::vector<ir::NodeId> writers;
  bool scans = false;
  for (ir::NodeId i = 0; i < static_cast<ir::NodeId>(graph.nodes.size()); ++i) {
    const Node& node = graph.nodes[i];
    const std::vector<BufferId> reads = ir::reads(node), writes = ir::writes(node);
    if (has(writes, buffer)) {
      if (scans || i > last || (node.kind != ir::NodeKind::kScan && node.kind != ir::NodeKind::kMap)) return {};
      scans = node.kind == ir::NodeKind::kScan;
      writers.push_back(i);
    }
    if (i != last && has(reads, buffer)) return {};
    if (!writers.empty() && i < last && (has(reads, target) || has(writes, target))) return {};
  }
  return scans ? writers : std::vector<ir::NodeId>{};
}

}  // namespace

void scans_in_place(Schedule& schedule, const Caps&) {
  ir::Graph& graph = schedule.graph;
  const std::vector<bool> visible = visible_buffers(graph);
  std::vector<Node> nodes;
  std::vector<ir::NodeId> from;
  for (ir::NodeId i = 0; i < static_cast<ir::NodeId>(graph.nodes.size()); ++i) {
    const BufferId buffer = copied_whole(graph, graph.nodes[i]);
    std::vector<ir::NodeId> writers;
    if (buffer != ir::kNone && !visible[buffer]) writers = writers_of(graph, buffer, graph.nodes[i].stores[0].buffer, i);
    if (writers.empty()) {
      from.push_back(i);
      continue;
    }
    for (const ir::NodeId writer : writers)
      for (ir::Store& store : graph.nodes[writer].stores)
        if (store.buffer == buffer) store.buffer = graph.nodes[i].stores[0].buffer;
    schedule.log.push_back(graph.nodes[i].origin.op + ": the scan stores in place");
  }
  if (from.size() == graph.nodes.size()) return;
  nodes.reserve(from.size());
  for (const ir::NodeId i : from) nodes.push_back(std::move(graph.nodes[i]));
  replace_nodes(schedule, std::move(nodes), from);
}

}  // namespace ocl::schedule
