// csrc/schedule/body.h: rewrites bodies of loop nests: changes of loops, inlined producers, removal of dead ops.
#pragma once

#include <utility>
#include <vector>

#include "csrc/schedule/loops.h"

namespace ocl::schedule {

/// True if the node has loops and a body (Map, Reduce or Scan).
bool is_loop_nest(const ir::Node& node);
/// Replaces the node's loop variables, in the indices of all its loads and stores, by expressions over new loops. The caller
/// sets the sizes. ranges: the extents of the new loops.
void rewrite_loops(ir::Node& node, const LoopMap& map, const ir::Ranges& ranges);
/// Rewrites the loops of several nodes that have the same loops. It caches rewritten coordinates, because most of them
/// are equal.
class LoopRewriter {
 public:
  LoopRewriter(const LoopMap& map, const ir::Ranges& ranges) : map_(map), ranges_(ranges) {}
  void rewrite(ir::Node& node);

 private:
  void rewrite(Coords& coords);
  const LoopMap& map_;
  const ir::Ranges& ranges_;
  std::vector<std::pair<Coords, Coords>> known_;  // Cached coordinates, before and after rewriting.
};
/// Removes loops of extent 1.
void drop_extent_1_loops(ir::Node& node, const ir::Graph& graph);
/// Replaces each op number i in the op's arguments, and in the symbols v<i> of its index expressions, by `position[i]`.
void renumber(ir::Op& op, const std::vector<int>& position);
/// Removes equal and unused operations of the node's body.
void tidy(ir::Node& node);

/// True if the coordinates of `store` determine all loops of `producer`.
bool can_inline(const ir::Node& producer, const ir::Store& store);
/// Replaces each load of store.buffer in `consumer` by the producer's body at the loaded coordinates. Requires
/// can_inline(). The value is rounded to the buffer's dtype as if it had been stored. It is 0 where the load's mask is
/// false.
void inline_producer(ir::Node& consumer, const ir::Node& producer, const ir::Store& store, const ir::Graph& graph);

/// Appends the ops of `from` with its loops replaced. mask: the condition of its loads, or kNone. Returns their new numbers.
std::vector<int> append_body(ir::Body& body, const ir::Node& from, const LoopMap& loops, const ir::Ranges& ranges,
                             int mask = ir::kNone);

/// Makes a Reduce's casts to narrow floats casts to the type in which bodies compute, for values that are never stored.
void keep_unrounded(ir::Node& node);

/// Returns the cost of the body's operations for one element of the loops, in quarters of a byte of memory traffic.
double op_cost(const ir::Node& node);
/// Returns the number of bytes that the node reads. Each buffer counts once, with at most its size and at most what the
/// loops touch.
double bytes_read(const ir::Graph& graph, const ir::Node& node);
/// A load or store of a node.
struct Access {
  ir::BufferId buffer = ir::kNone;
  Coords coords;
  bool store = false;
  // True for a store with a mask, or one that combines its value with the stored one. A load after it may see older
  // values.
  bool partial = false;
};
std::vector<Access> accesses(const ir::Node& node);
/// True if the coordinates depend on the value of an op, as in x[i[r], c].
bool gathers(const std::vector<ir::IndexExpr>& coords);

}  // namespace ocl::schedule
