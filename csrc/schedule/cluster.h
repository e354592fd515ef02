// csrc/schedule/cluster.h: nodes that will be one launch, while fusion is deciding: their common loops, and how each node's
// loops follow from these.
#pragma once

#include <string>

#include "csrc/schedule/body.h"
#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// What a member touches, in the cluster's loops.
struct ClusterAccess {
  ir::BufferId buffer = ir::kNone;
  Coords coords;
  bool store = false;
  bool partial = false;  // as in Access
  ir::NodeId node = ir::kNone;
};

struct Member {
  ir::NodeId node = ir::kNone;
  LoopMap map;         // the node's loops over the cluster's
  bool inner = false;  // runs for every (i*, r*)
};

struct Cluster {
  Loops loops;
  std::vector<Member> members;  // program order
  std::vector<ClusterAccess> accesses;
  std::vector<ir::BufferId> opaque;  // read in an unknown order: operands of a template or a call
  std::vector<ir::BufferId> beside;  // further outputs of a template, written in an unknown order
  ir::NodeId main = ir::kNone;       // the template
  ir::NodeId call = ir::kNone;
  LoopStrategy strategy = LoopStrategy::kPointwise;
  std::vector<Phase> phases;
  std::vector<std::string> reasons;

  bool scan = false;  // runs alone

  bool has_reduction() const { return strategy != LoopStrategy::kPointwise; }
  bool pointwise() const { return !has_reduction() && main == ir::kNone && call == ir::kNone; }
  int inner_phases() const;
  std::vector<ir::BufferId> buffers() const;  // distinct
};

Cluster cluster_of(const Schedule& schedule, ir::NodeId node, const Caps& caps);

/// One launch for both, with the loops of one of them; nullopt if no assignment of loops makes every value that one stores and
/// the other touches fall on the same iteration, or no order of phases fits. Whether a third node lies between them is the
/// caller's question.
std::optional<Cluster> combine(const Schedule& schedule, const Cluster& a, const Cluster& b);

}  // namespace ocl::schedule
