// csrc/schedule/join_gradients.cpp: see join_gradients.h.
#include "csrc/schedule/join_gradients.h"

#include <algorithm>

#include "csrc/schedule/offer/offer.h"

namespace ocl::schedule {
namespace {

using ir::AttentionKind;

bool is_gradient(const Node& node) {
  const AttentionKind kind = node.attention.kind;
  return node.kind == ir::NodeKind::kAttention && (kind == AttentionKind::kQuery || kind == AttentionKind::kKeyValue);
}

/// True if both nodes are gradients of the same attention: one of queries, the other of keys and values.
bool belong_together(const Node& a, const Node& b) {
  if (!is_gradient(b) || a.attention.kind == b.attention.kind || a.reduced_precision != b.reduced_precision) return false;
  ir::AttentionAttrs attrs = a.attention;
  attrs.kind = b.attention.kind;
  return attrs == b.attention && a.operands == b.operands && a.body.ops.empty() && b.body.ops.empty();
}

/// True if a node between the two writes to what they read.
bool is_changed(const ir::Graph& graph, NodeId first, NodeId second) {
  const std::vector<ir::BufferId> read = ir::reads(graph.nodes[first]);
  for (NodeId i = first + 1; i < second; ++i)
    for (const ir::BufferId written : ir::writes(graph.nodes[i]))
      if (std::ranges::find(read, written) != read.end()) return true;
  return false;
}

Node joined(const Node& first, const Node& second) {
  const bool in_order = first.attention.kind == AttentionKind::kQuery;
  const Node &query = in_order ? first : second, &keys = in_order ? second : first;
  Node node = query;
  node.attention.kind = AttentionKind::kGradients;
  node.outputs.insert(node.outputs.end(), keys.outputs.begin(), keys.outputs.end());
  return node;
}

/// True if a kernel takes the node.
bool has_kernel(const Schedule& schedule, NodeId id, const Caps& caps) {
  return std::ranges::any_of(template_rows(), [&](const TemplateRow& row) {
    return row.is_for(caps) && row.computes(schedule.graph.nodes[id]) &&
           std::holds_alternative<Offer>(
               answer(row, Request{schedule.graph, id, row.kernel, caps, schedule.keeps_parameters}, ""));
  });
}

}  // namespace

void join_gradients(Schedule& schedule, const Caps& caps) {
  std::vector<Node>& nodes = schedule.graph.nodes;
  for (NodeId i = 0; i < static_cast<NodeId>(nodes.size()); ++i) {
    if (!is_gradient(nodes[i])) continue;
    const auto other =
        std::find_if(nodes.begin() + i + 1, nodes.end(), [&](const Node& node) { return belong_together(nodes[i], node); });
    if (other == nodes.end() || is_changed(schedule.graph, i, static_cast<NodeId>(other - nodes.begin()))) continue;
    Node before = std::exchange(nodes[i], joined(nodes[i], *other));
    if (has_kernel(schedule, i, caps))
      nodes.erase(other);
    else
      nodes[i] = std::move(before);
  }
}

}  // namespace ocl::schedule
