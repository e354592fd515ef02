// csrc/schedule/split_reductions.h: pass: a long reduction with few results becomes a partial one with a leading split loop and
// a final one that merges in a fixed order, so that all compute units work and two runs give the same bits.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void split_reductions(Schedule& schedule, const Caps& caps);

/// How the loops of a Reduce node should run, from the strides of its largest operand. The buffers must have strides.
LoopStrategy reduction_strategy(const ir::Graph& graph, const ir::Node& node, const Caps& caps);

/// kColumn: how many outer elements a work-group takes side by side: few enough that a third of the compute units has a
/// work-group, and that no work-group reads much more than the others.
int columns_per_group(double outer, double length, const Caps& caps);
/// Whether a kRow or kColumn reduction of a GPU should stay whole although few work-groups run: cutting it costs a launch, and
/// so does each pass over its elements.
bool enough_groups(LoopStrategy strategy, double outer, double length, const Caps& caps);

/// Whether the pass would cut the reduction, because one launch has too few work-groups.
bool wants_slices(const ir::Graph& graph, const ir::Node& node, const Caps& caps);

/// Innermost loop of a coordinate list that has stride 1, and the stride of each loop; nullopt where the offset is not affine.
std::vector<std::optional<ir::IndexExpr>> loop_strides(const ir::Graph& graph, ir::BufferId buffer,
                                                       const std::vector<ir::IndexExpr>& coords,
                                                       const std::vector<ir::Symbol>& loops, const ir::Ranges& ranges);

/// How far the second iteration of a loop is from the first, all other loops at 0, where that is a number: also of offsets that
/// are affine in pieces (i // 64, i % 64).
std::optional<int64_t> first_step(const ir::Graph& graph, ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords,
                                  const std::vector<ir::Symbol>& loops, ir::Symbol loop, const ir::Ranges& ranges);

}  // namespace ocl::schedule
