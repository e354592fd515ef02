// csrc/schedule/loops.h: loop nests as symbols with extents, maps between nests, and sizes as numbers for cost models.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "csrc/schedule/offer/names.h"

namespace ocl::schedule {

/// The loops of a node or group: the outer loops i* over `sizes`, then the reduction loops r* over `reduce_sizes`.
struct Loops {
  ir::Shape sizes, reduce_sizes;
  std::vector<ir::Symbol> symbols() const;
  ir::Shape extents() const;  // Extents of `symbols`.
  ir::Ranges ranges(const ir::Graph& graph) const;
};
Loops loops_of(const ir::Node& node);

/// The loops of one nest as expressions over the loops of another.
using LoopMap = std::map<ir::Symbol, ir::IndexExpr>;
using Coords = std::vector<ir::IndexExpr>;

LoopMap identity(const Loops& loops);
Coords substitute(const Coords& coords, const LoopMap& map, const ir::Ranges& ranges);
/// `inner` maps A to B and `outer` maps B to C. Returns the map from A to C.
LoopMap compose(const LoopMap& inner, const LoopMap& outer, const ir::Ranges& ranges);

/// Solves coords(loops) = target for `loops`. target_ranges: the ranges of the symbols in `target`. The coordinates may be
/// plain symbols, flattened loops (i0*8 + i1) or split ones (i0 // 8, i0 % 8). A loop that the coordinates do not determine is
/// missing in the result, unless its extent is 1. The result is proved: it is within the extents and gives `target` for all
/// values.
std::optional<LoopMap> solve(const Loops& loops, const Coords& coords, const Coords& target, const ir::Ranges& target_ranges);

/// True if `map` (loops of `from` as expressions over loops of `to`) visits each iteration of `from` once.
/// `outer_only`: use only i* of `to`.
bool is_bijection(const ir::Graph& graph, const Loops& from, const LoopMap& map, const Loops& to, bool outer_only);

/// For a load of every second element of a buffer, at `rest` plus an even multiple of the position: if aligned pairs of vectors
/// of `width` have these elements, returns whether they are the first (0) or second (1) of two. The buffer has strides.
std::optional<int> half_of_vectors(const ir::Buffer& buffer, const ir::IndexExpr& rest, int width, const ir::Ranges& ranges);

/// Returns a size as a number, for comparing costs, never for correctness. Symbols without a small range count as 32.
double typical(const ir::Graph& graph, const ir::IndexExpr& e);
double typical_product(const ir::Graph& graph, const ir::Shape& sizes);
/// Returns the sizes of what a buffer has in memory: 1 for a dimension of stride 0.
ir::Shape stored_sizes(const ir::Buffer& buffer);
/// Returns the bytes of these elements.
double typical_bytes(const ir::Graph& graph, ir::BufferId buffer);
/// True if both shapes provably have the same number of elements.
bool same_count(const ir::Shape& a, const ir::Shape& b);

}  // namespace ocl::schedule
