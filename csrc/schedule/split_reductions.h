// csrc/schedule/split_reductions.h: pass: a long reduction with few results becomes a partial one with a leading split loop and
// a final one that merges in a fixed order, so that all compute units work and two runs give the same bits.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void split_reductions(Schedule& schedule, const Caps& caps);

/// How the loops of a Reduce node should run, from the strides of its largest operand. The buffers must have strides.
LoopStrategy reduction_strategy(const ir::Graph& graph, const ir::Node& node, const Caps& caps);

/// Innermost loop of a coordinate list that has stride 1, and the stride of each loop; nullopt where the offset is not affine.
std::vector<std::optional<ir::IndexExpr>> loop_strides(const ir::Graph& graph, ir::BufferId buffer,
                                                       const std::vector<ir::IndexExpr>& coords,
                                                       const std::vector<ir::Symbol>& loops, const ir::Ranges& ranges);

}  // namespace ocl::schedule
