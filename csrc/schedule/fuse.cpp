// csrc/schedule/fuse.cpp: pass: fuses nodes into groups.
#include "csrc/schedule/fuse.h"

#include <algorithm>
#include <set>

#include "csrc/schedule/dependence.h"
#include "csrc/schedule/fuse_rules.h"

namespace ocl::schedule {

using ir::BufferId;
using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

class Fuser {
 public:
  Fuser(Schedule& schedule, const Caps& caps) : schedule_(schedule), caps_(caps) {
    for (Node& node : schedule.graph.nodes)
      if (is_loop_nest(node)) {
        drop_extent_1_loops(node, schedule.graph);
        tidy(node);
      }
    dependences_ = node_dependences(schedule);
    parameters_ = nodes_of_parameters(schedule);
    for (NodeId i = 0; i < static_cast<NodeId>(schedule.graph.nodes.size()); ++i) {
      clusters_.push_back(cluster_of(schedule, i, caps));
      owner_.push_back(i);
    }
    readers_.resize(schedule.graph.buffers.size());
    for (NodeId i = 0; i < static_cast<NodeId>(schedule.graph.nodes.size()); ++i)
      for (const BufferId b : buffers_read(schedule, i)) readers_[b].push_back(i);
  }

  void run() {
    for (const bool templates : {true, false})
      for (bool changed = true; changed;) {
        changed = false;
        for (NodeId i = 0; i < static_cast<NodeId>(owner_.size()); ++i)
          if (!templates || schedule_.launches.count(i)) changed |= along_values(i);
        if (!templates) changed |= between_siblings();
      }
  }

  void emit() {
    Graph& graph = schedule_.graph;
    for (const int c : launch_order()) {
      Cluster& cluster = clusters_[c];
      Group group;
      group.reasons = std::move(cluster.reasons);
      group.sizes = cluster.loops.sizes;
      group.reduce_sizes = cluster.loops.reduce_sizes;
      if (cluster.call != ir::kNone) {
        group.kind = GroupKind::kCall;
        group.call = cluster.call;
      } else {
        rewrite(graph, cluster);
        if (cluster.main != ir::kNone) {
          group.kind = GroupKind::kTemplate;
          group.main = cluster.main;
          group.launch = schedule_.launches.at(cluster.main);
          for (const Member& member : cluster.members)
            if (member.node != cluster.main) group.epilogue.push_back(member.node);
        } else {
          group.strategy = cluster.strategy;
          group.phases = std::move(cluster.phases);
        }
      }
      schedule_.groups.push_back(std::move(group));
    }
  }

 private:
  /// Rewrites the members to use the cluster's loops.
  static void rewrite(Graph& graph, const Cluster& cluster) {
    const ir::Ranges ranges = cluster.loops.ranges(graph);
    for (const Member& member : cluster.members) {
      Node& node = graph.nodes[member.node];
      if (!is_loop_nest(node)) continue;
      rewrite_loops(node, member.map, ranges);
      node.sizes = cluster.loops.sizes;
      node.reduce_sizes = member.inner ? cluster.loops.reduce_sizes : ir::Shape{};
    }
  }

  bool along_values(NodeId producer) {
    bool changed = false;
    for (const BufferId buffer : ir::writes(schedule_.graph.nodes[producer]))
      for (const NodeId consumer : readers_[buffer])
        if (consumer > producer) changed |= try_merge(owner_[producer], owner_[consumer], true);
    return changed;
  }

  bool between_siblings() {
    bool changed = false;
    // If many nodes read a buffer, such as a scalar, that does not make them siblings.
    constexpr size_t kMaxReaders = 12;
    for (const std::vector<NodeId>& readers : readers_) {
      if (readers.size() < 2 || readers.size() > kMaxReaders) continue;
      for (size_t i = 0; i < readers.size(); ++i)
        for (size_t j = i + 1; j < readers.size(); ++j) changed |= try_merge(owner_[readers[i]], owner_[readers[j]], false);
    }
    // Final steps of one split reduction read different buffers of the same launch.
    for (size_t c = 0; c < clusters_.size(); ++c) {
      if (clusters_[c].members.empty() || !clusters_[c].has_reduction()) continue;
      std::set<int> next;
      for (const ClusterAccess& access : clusters_[c].accesses)
        if (access.store)
          for (const NodeId reader : readers_[access.buffer]) next.insert(owner_[reader]);
      const std::vector<int> list(next.begin(), next.end());
      for (size_t i = 0; i < list.size() && list.size() <= kMaxReaders; ++i)
        for (size_t j = i + 1; j < list.size(); ++j)
          if (!clusters_[list[i]].members.empty() && clusters_[list[i]].has_reduction() && clusters_[list[j]].has_reduction())
            changed |= try_merge(list[i], list[j], false);
    }
    return changed;
  }

  bool try_merge(int a, int b, bool connected) {
    if (a == b || clusters_[a].members.empty() || clusters_[b].members.empty()) return false;
    if (!parameters_.empty() && parameters_[clusters_[a].members[0].node] != parameters_[clusters_[b].members[0].node])
      return false;
    if (clusters_[a].members.size() + clusters_[b].members.size() > 200) return false;
    const std::pair<int, int> key{a, b};
    const auto stamp = std::pair{clusters_[a].members.size(), clusters_[b].members.size()};
    const auto seen = refused_.find(key);
    if (seen != refused_.end() && seen->second == stamp) return false;
    refused_[key] = stamp;
    if (!connected && clusters_[b].members[0].node < clusters_[a].members[0].node && clusters_[a].main == ir::kNone)
      std::swap(a, b);
    if (!connected && (clusters_[a].main != ir::kNone || clusters_[b].main != ir::kNone)) return false;
    auto merged = combine(schedule_, clusters_[a], clusters_[b]);
    if (!merged) return false;
    std::string refused;
    const Fusion fusion{schedule_, caps_, clusters_[a], clusters_[b], *merged, connected};
    const FuseRule* rule = find_rule(fusion, refused);
    if (!rule) {
      if (connected && !refused.empty())
        clusters_[b].reasons.push_back("not fused with " + name(a) + ": " + refused + " is not worth it here");
      return false;
    }
    if (around(a, b) || around(b, a) || (!connected && (direct(a, b) || direct(b, a)))) return false;
    merged->reasons.push_back(std::string(rule->name) + ": " + rule->reason);
    for (const Member& member : clusters_[b].members) owner_[member.node] = a;
    clusters_[b] = {};
    clusters_[a] = std::move(*merged);
    return true;
  }

  std::string name(int cluster) const { return schedule_.graph.nodes[clusters_[cluster].members[0].node].origin.op; }

  bool direct(int a, int b) const {
    for (const Member& member : clusters_[a].members)
      for (const NodeId next : dependences_.after[member.node])
        if (owner_[next] == b) return true;
    return false;
  }

  /// True if a path leads from a to b through a third cluster.
  bool around(int a, int b) const {
    std::vector<bool> seen(clusters_.size(), false);
    std::vector<int> stack;
    seen[a] = true;
    const auto visit = [&](int cluster, bool first) {
      for (const Member& member : clusters_[cluster].members)
        for (const NodeId next : dependences_.after[member.node]) {
          const int to = owner_[next];
          if (to == b && !first) return true;
          if (to == b || seen[to]) continue;
          seen[to] = true;
          stack.push_back(to);
        }
      return false;
    };
    if (visit(a, true)) return true;
    while (!stack.empty()) {
      const int at = stack.back();
      stack.pop_back();
      if (visit(at, false)) return true;
    }
    return false;
  }

  /// A topological order of the clusters. If several are possible, the earlier first node decides.
  std::vector<int> launch_order() const {
    std::vector<std::set<int>> after(clusters_.size());
    std::vector<int> waiting(clusters_.size(), 0), order;
    for (size_t i = 0; i < owner_.size(); ++i)
      for (const NodeId next : dependences_.after[i])
        if (owner_[i] != owner_[next]) after[owner_[i]].insert(owner_[next]);
    for (const std::set<int>& list : after)
      for (const int next : list) ++waiting[next];
    std::set<std::pair<NodeId, int>> ready;
    const auto push = [&](int c) { ready.insert({clusters_[c].members[0].node, c}); };
    for (int c = 0; c < static_cast<int>(clusters_.size()); ++c)
      if (!clusters_[c].members.empty() && waiting[c] == 0) push(c);
    while (!ready.empty()) {
      const int c = ready.begin()->second;
      ready.erase(ready.begin());
      order.push_back(c);
      for (const int next : after[c])
        if (--waiting[next] == 0) push(next);
    }
    return order;
  }

  Schedule& schedule_;
  const Caps& caps_;
  Dependences dependences_;
  std::vector<bool> parameters_;   // Nodes whose results are kept between calls. Empty: none are.
  std::vector<Cluster> clusters_;  // Index = the cluster's first node. Merged clusters are empty.
  std::vector<int> owner_;         // Cluster of each node.
  std::vector<std::vector<NodeId>> readers_;
  // Pairs that were refused, with the number of members that they had then.
  std::map<std::pair<int, int>, std::pair<size_t, size_t>> refused_;
};

}  // namespace

void fuse(Schedule& schedule, const Caps& caps) {
  Fuser fuser(schedule, caps);
  fuser.run();
  fuser.emit();
}

void one_group_per_node(Schedule& schedule, const Caps& caps) { Fuser(schedule, caps).emit(); }

}  // namespace ocl::schedule
