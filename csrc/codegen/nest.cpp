// csrc/codegen/nest.cpp: see nest.h.
#include "csrc/codegen/nest.h"

namespace ocl::codegen {

namespace {

/// Returns the extents of the group's loops and the ranges of its sizes.
ir::Ranges ranges_of(const schedule::Schedule& schedule, const schedule::Group& group) {
  ir::Ranges ranges = schedule.graph.ranges();
  for (size_t k = 0; k < group.sizes.size(); ++k) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(k)}, group.sizes[k]);
  for (size_t k = 0; k < group.reduce_sizes.size(); ++k)
    ranges.set_extent({SymbolKind::kReduce, static_cast<int>(k)}, group.reduce_sizes[k]);
  return ranges;
}

}  // namespace

Nest::Nest(const schedule::Schedule& schedule, const schedule::Group& g, const Caps& caps)
    : group(g),
      ranges(ranges_of(schedule, g)),
      kernel(schedule, caps, stored_buffers(schedule, g.nodes()), g.index32),
      body(kernel, ranges) {}

IndexExpr elements_per_item(const Dialect& dialect, const IndexExpr& elements, const IndexExpr& cost) {
  const IndexExpr least = ir::max(1, ir::floordiv(IndexExpr(kLeastWork), ir::max(cost, 1)));
  return ir::max(least, ir::ceildiv(elements, dialect.chunks));
}

}  // namespace ocl::codegen
