// csrc/schedule/body.h: changes to the bodies of Map and Reduce nodes: their loops, loads replaced by producers, dead ops.
#pragma once

#include <utility>
#include <vector>

#include "csrc/schedule/loops.h"

namespace ocl::schedule {

/// Whether the node has loops and a body (Map, Reduce or Scan).
bool is_loop_nest(const ir::Node& node);
/// Replaces the node's loops in all its coordinates; sizes are left to the caller. `ranges` of the new loops.
void rewrite_loops(ir::Node& node, const LoopMap& map, const ir::Ranges& ranges);
/// The same for several nodes with the same loops: most of their accesses have equal coordinates, which are worked out once.
class LoopRewriter {
 public:
  LoopRewriter(const LoopMap& map, const ir::Ranges& ranges) : map_(map), ranges_(ranges) {}
  void rewrite(ir::Node& node);

 private:
  void rewrite(Coords& coords);
  const LoopMap& map_;
  const ir::Ranges& ranges_;
  std::vector<std::pair<Coords, Coords>> known_;  // before and after
};
/// Drops loops of extent 1.
void drop_extent_1_loops(ir::Node& node, const ir::Graph& graph);
/// The op's value symbols (v*) and arguments renumbered by `position`.
void renumber(ir::Op& op, const std::vector<int>& position);
/// Removes equal and unused operations of a Map or Reduce body.
void tidy(ir::Node& node);

/// Whether the loops of `producer` can be read off the coordinates that it stores value `store` at.
bool can_inline(const ir::Node& producer, const ir::Store& store);
/// Replaces each load of store.buffer in `consumer` by the producer's body at the loaded coordinates. Precondition: can_inline.
/// The value is rounded to the buffer's dtype as if it had been stored; under a mask it is 0 where the mask is false.
void inline_producer(ir::Node& consumer, const ir::Node& producer, const ir::Store& store, const ir::Graph& graph);

/// The cost of the body's operations for one element of the loops, in quarters of a byte of memory traffic.
double op_cost(const ir::Node& node);
/// Bytes that the node reads, each buffer counted once and no more than it has or the loops touch.
double bytes_read(const ir::Graph& graph, const ir::Node& node);
/// A load or store of a node.
struct Access {
  ir::BufferId buffer = ir::kNone;
  Coords coords;
  bool store = false;
  bool partial = false;  // a store under a mask, or one that combines: what a later load finds may be older
};
std::vector<Access> accesses(const ir::Node& node);

}  // namespace ocl::schedule
