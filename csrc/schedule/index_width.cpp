// csrc/schedule/index_width.cpp: see index_width.h.
#include "csrc/schedule/index_width.h"

#include <algorithm>

#include "csrc/ir/facts.h"

namespace ocl::schedule {

namespace {

/// True if all offsets into the buffer are below 2^31.
bool fits_31_bits(const Graph& graph, const ir::Buffer& buffer, const ir::Ranges& ranges) {
  IndexExpr last = 0;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) last = last + (buffer.sizes[d] - 1) * (*buffer.strides)[d];
  return ranges.of(simplify(last, ranges)).high < (int64_t{1} << 31) - 1 && graph.symbols >= 0;
}

/// True if the size symbols in a node's index expressions fit int32_t. They may be numbers of the caller that are no sizes.
bool has_narrow_symbols(const Graph& graph, const ir::Node& node, const ir::Ranges& ranges) {
  const auto fits = [&](const IndexExpr& e) {
    for (int s = 0; s < graph.symbols; ++s) {
      const ir::Range range = ranges.of(IndexExpr::size(s));
      if ((range.low < INT32_MIN || range.high > INT32_MAX) && e.uses(IndexExpr::size(s).symbol())) return false;
    }
    return true;
  };
  return std::ranges::all_of(node.body.ops, [&](const ir::Op& op) { return std::ranges::all_of(op.index, fits); }) &&
         std::ranges::all_of(node.stores, [&](const ir::Store& store) { return std::ranges::all_of(store.index, fits); });
}

void choose_group_width(const Schedule& schedule, Group& group) {
  for (Group& member : group.members) choose_group_width(schedule, member);
  group.index32 = has_narrow_indices(schedule, group);
}

}  // namespace

bool has_narrow_indices(const Schedule& schedule, const Group& group) {
  const Graph& graph = schedule.graph;
  const ir::Ranges ranges = graph.ranges();
  if (ranges.of(simplify(product(group.sizes) * product(group.reduce_sizes), ranges)).high >= (int64_t{1} << 31) - 1)
    return false;
  for (const ir::NodeId id : group.nodes()) {
    if (!has_narrow_symbols(graph, graph.nodes[id], ranges)) return false;
    for (const auto& list : {ir::reads(graph.nodes[id]), ir::writes(graph.nodes[id])})
      for (const ir::BufferId buffer : list)
        if (!fits_31_bits(graph, graph.buffers[buffer], ranges)) return false;
  }
  return true;
}

void choose_index_width(Schedule& schedule, const Caps&) {
  for (Group& group : schedule.groups) choose_group_width(schedule, group);
}

}  // namespace ocl::schedule
