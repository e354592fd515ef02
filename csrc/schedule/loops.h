// csrc/schedule/loops.h: loop nests as symbols with extents, maps between two nests, sizes as numbers for cost comparisons.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::schedule {

/// The loops of a node or a group, i* and then r*.
struct Loops {
  ir::Shape sizes, reduce_sizes;
  std::vector<ir::Symbol> symbols() const;
  ir::Shape extents() const;  // extents of `symbols`
  ir::Ranges ranges(const ir::Graph& graph) const;
};
Loops loops_of(const ir::Node& node);

/// Loops of one nest as expressions over the loops of another.
using LoopMap = std::map<ir::Symbol, ir::IndexExpr>;
using Coords = std::vector<ir::IndexExpr>;

LoopMap identity(const Loops& loops);
Coords substitute(const Coords& coords, const LoopMap& map, const ir::Ranges& ranges);
/// `inner` maps A to B and `outer` B to C: A to C.
LoopMap compose(const LoopMap& inner, const LoopMap& outer, const ir::Ranges& ranges);

/// Solves coords(loops) = target for `loops`: plain symbols, flattened loops (i0*8 + i1) and split ones (i0 // 8, i0 % 8).
/// Loops that the coordinates do not determine are missing from the result, unless they have extent 1. The result is verified:
/// within the extents, and equal to `target` for all values.
std::optional<LoopMap> solve(const Loops& loops, const Coords& coords, const Coords& target, const ir::Ranges& target_ranges);

/// Whether `map` (from loops `from` to loops `to`) visits each element of `from` once. `outer_only`: among i* of `to`.
bool is_bijection(const ir::Graph& graph, const Loops& from, const LoopMap& map, const Loops& to, bool outer_only);

/// A size as a number: symbols without a small range count as 32. For comparing costs, never for legality.
double typical(const ir::Graph& graph, const ir::IndexExpr& e);
double typical_product(const ir::Graph& graph, const ir::Shape& sizes);
double typical_bytes(const ir::Graph& graph, ir::BufferId buffer);
/// Equal products of sizes, by their canonical form.
bool same_count(const ir::Shape& a, const ir::Shape& b);

}  // namespace ocl::schedule
