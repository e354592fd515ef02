// csrc/schedule/split_reductions.h: pass: splits a long reduction with few results into a partial one with a leading
// slice loop, and a final one that merges the slices in a fixed order. So all compute units work, and two runs give the
// same bits.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void split_reductions(Schedule& schedule, const Caps& caps);

/// Returns the loop strategy of a Reduce node, which follows from the strides of its largest operand. The buffers must
/// have strides.
LoopStrategy reduction_strategy(const ir::Graph& graph, const ir::Node& node, const Caps& caps);
/// Returns the loop strategy of a Scan node. kRow: a work-group of a GPU scans a row. The buffers must have strides.
LoopStrategy scan_strategy(const ir::Graph& graph, const ir::Node& node, const Caps& caps);

/// For kColumn: returns the number of outer elements that a work-group computes side by side. outer: number of outer
/// elements; length: number of elements that each reduces. The result is so small that at least a third of the compute
/// units get a work-group, and that no work-group reads much more than others. element_bytes: size of the smallest elements
/// that are read; neighbouring elements of fewer than 32 bytes would waste a part of each transfer from memory.
int columns_per_group(double outer, double length, int64_t element_bytes, const Caps& caps);
/// True if a kRow or kColumn reduction on a GPU should not be split although it has few work-groups. Splitting costs
/// another launch, and so does each further pass over its elements. outer, length, element_bytes: see columns_per_group.
bool enough_groups(LoopStrategy strategy, double outer, double length, int64_t element_bytes, const Caps& caps);

/// True if the pass would split the reduction, because one launch has too few work-groups.
bool wants_slices(const ir::Graph& graph, const ir::Node& node, const Caps& caps);

/// Returns, for each of `loops`, how far the offset of element `coords` of `buffer` moves in one iteration, in
/// elements. The entry is nullopt for a loop in which the offset is not affine.
std::vector<std::optional<ir::IndexExpr>> loop_strides(const ir::Graph& graph, ir::BufferId buffer,
                                                       const std::vector<ir::IndexExpr>& coords,
                                                       const std::vector<ir::Symbol>& loops, const ir::Ranges& ranges);

/// Returns the distance in elements between the first and the second iteration of `loop`, with all other loops at 0.
/// nullopt if the distance is no constant. Works also for offsets that are only piecewise affine (i // 64, i % 64).
std::optional<int64_t> first_step(const ir::Graph& graph, ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords,
                                  const std::vector<ir::Symbol>& loops, ir::Symbol loop, const ir::Ranges& ranges);

}  // namespace ocl::schedule
