// csrc/schedule/choose_template.cpp: pass: a hand-written kernel for each contraction, convolution and attention.
#include "csrc/schedule/choose_template.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl::schedule {

namespace {

/// Without elements to read, add up or write there is nothing to tile, and the choosers divide by the sizes.
bool is_empty(const ir::Node& node) {
  const auto zero = [](const ir::Shape& sizes) {
    return std::any_of(sizes.begin(), sizes.end(),
                       [](const ir::IndexExpr& size) { return size.is_const() && size.constant() == 0; });
  };
  return zero(node.sizes) || zero(node.reduce_sizes) ||
         std::any_of(node.operands.begin(), node.operands.end(), [&](const ir::View& operand) { return zero(operand.sizes); });
}

}  // namespace

void choose_template(Schedule& schedule, const Caps& caps) {
  ir::Graph& graph = schedule.graph;
  std::vector<ir::Node> nodes;
  std::vector<ir::NodeId> from;
  std::map<ir::NodeId, TemplateLaunch> launches;
  const int count = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < count; ++i) {
    const ir::NodeKind kind = graph.nodes[i].kind;
    if (kind != ir::NodeKind::kContract && kind != ir::NodeKind::kConvolve && kind != ir::NodeKind::kAttention) {
      nodes.push_back(std::move(graph.nodes[i]));
      continue;
    }
    const ir::Node original = graph.nodes[i];
    bool taken = false;
    const bool empty = is_empty(original);
    for (const TemplateRow& row : template_rows()) {
      if (empty) break;
      if (!(caps.is_cpu ? row.on_cpu : row.on_gpu)) continue;
      std::vector<ir::Node> before, after;
      TemplateLaunch launch;
      TemplateContext context{graph, i, caps, before, after};
      if (!row.choose(context, launch)) {
        graph.nodes[i] = original;
        continue;
      }
      schedule.log.push_back(original.origin.op + ": " + row.name + " " + launch.variant);
      for (ir::Node& helper : before) nodes.push_back(std::move(helper));
      launches.emplace(static_cast<ir::NodeId>(nodes.size()), std::move(launch));
      nodes.push_back(std::move(graph.nodes[i]));
      for (ir::Node& helper : after) nodes.push_back(std::move(helper));
      taken = true;
      break;
    }
    if (taken) continue;
    OCL_ASSERT(kind != ir::NodeKind::kAttention, "attention has no generated form: " + original.origin.op);
    schedule.log.push_back(original.origin.op + ": no template takes it, generated loops");
    nodes.push_back(lower_contraction(graph, original));
  }
  graph.nodes = std::move(nodes);
  schedule.launches = std::move(launches);
  for (ir::Buffer& buffer : graph.buffers)  // helpers' buffers for which a chooser left the layout open
    if (!buffer.strides) buffer.strides = contiguous_strides(buffer.sizes);
}

}  // namespace ocl::schedule
