// csrc/schedule/cluster.h: nodes that will be one launch, while fusion decides: their common loops, and each node's loops as
// expressions over them.
#pragma once

#include <string>

#include "csrc/schedule/body.h"
#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// A load or store of a member, over the cluster's loops.
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
  std::vector<ir::BufferId> opaque;         // read in an unknown order: operands of a template or a call
  std::vector<ir::BufferId> extra_outputs;  // other outputs of a template, written in an unknown order
  ir::NodeId main = ir::kNone;              // the template
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

/// Both clusters as one launch, with the loops of one of them. nullopt if the loops cannot be matched so that each value that
/// one cluster stores and the other touches belongs to the same iteration, or if no order of phases fits. The caller checks
/// that no path leads from one to the other through a third. `why_not` becomes the reason for nullopt.
std::optional<Cluster> combine(const Schedule& schedule, const Cluster& a, const Cluster& b, const char*& why_not);

}  // namespace ocl::schedule
