// csrc/schedule/cluster.h: a cluster is a set of nodes that will be one launch. Fusion merges clusters. A cluster has
// common loops, and for each node a map from the node's loops to the common ones.
#pragma once

#include <string>

#include "csrc/schedule/body.h"
#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// A load or store of a member, at coordinates over the cluster's loops.
struct ClusterAccess {
  ir::BufferId buffer = ir::kNone;
  Coords coords;
  bool store = false;
  bool partial = false;  // True for a store with a mask, or one that combines its value with the stored one.
  ir::NodeId node = ir::kNone;
};

struct Member {
  ir::NodeId node = ir::kNone;
  LoopMap map;         // The node's loops as expressions over the cluster's loops.
  bool inner = false;  // Runs for every element of the reduction loops r*, not once per outer element.
};

struct Cluster {
  Loops loops;
  std::vector<Member> members;  // The members in program order.
  std::vector<ClusterAccess> accesses;
  // Buffers read in an unknown order: operands of a template or a call.
  std::vector<ir::BufferId> opaque;
  // Further outputs of a template, written in an unknown order.
  std::vector<ir::BufferId> extra_outputs;
  ir::NodeId main = ir::kNone;  // The node with a template, or kNone.
  ir::NodeId call = ir::kNone;
  LoopStrategy strategy = LoopStrategy::kPointwise;
  std::vector<Phase> phases;
  std::vector<std::string> reasons;

  bool scan = false;  // The cluster is a Scan, which is never fused.

  bool has_reduction() const { return strategy != LoopStrategy::kPointwise; }
  bool pointwise() const { return !has_reduction() && main == ir::kNone && call == ir::kNone; }
  int inner_phases() const;
  std::vector<ir::BufferId> buffers() const;  // Each buffer once.
};

Cluster cluster_of(const Schedule& schedule, ir::NodeId node, const Caps& caps);

/// Returns one cluster made of both, with the loops of one of them. Returns nullopt and sets `why_not` to the reason in
/// two cases: the loops cannot be matched so that every access to a stored value is in the same iteration as the store,
/// or no order of phases is possible. The caller checks that no path leads from one cluster to the other through a
/// third.
std::optional<Cluster> combine(const Schedule& schedule, const Cluster& a, const Cluster& b, const char*& why_not);

}  // namespace ocl::schedule
