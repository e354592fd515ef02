// csrc/schedule/index_width.cpp: see index_width.h.
#include "csrc/schedule/index_width.h"

namespace ocl::schedule {

using ir::Graph;
using ir::IndexExpr;
using ir::NodeId;

namespace {

/// True if all offsets into the buffer are below 2^31.
bool fits_31_bits(const Graph& graph, const ir::Buffer& buffer, const ir::Ranges& ranges) {
  IndexExpr last = 0;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) last = last + (buffer.sizes[d] - 1) * (*buffer.strides)[d];
  return ranges.of(simplify(last, ranges)).high < (int64_t{1} << 31) - 1 && graph.symbols >= 0;
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
  for (const NodeId id : group.nodes())
    for (const auto& list : {ir::reads(graph.nodes[id]), ir::writes(graph.nodes[id])})
      for (const ir::BufferId buffer : list)
        if (!fits_31_bits(graph, graph.buffers[buffer], ranges)) return false;
  return true;
}

void choose_index_width(Schedule& schedule, const Caps&) {
  for (Group& group : schedule.groups) choose_group_width(schedule, group);
}

}  // namespace ocl::schedule
