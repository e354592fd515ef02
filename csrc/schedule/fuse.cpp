// csrc/schedule/fuse.cpp: pass: fuses nodes into groups.
#include "csrc/schedule/fuse.h"

#include <algorithm>
#include <set>

#include "csrc/schedule/dependence.h"
#include "csrc/schedule/fuse_rules.h"

namespace ocl::schedule {

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
    waits_ = waits_before(schedule, dependences_);
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
    std::vector<std::vector<Neighbour>> apart = neighbours();
    for (const int c : without_unread(launch_order())) {
      Cluster& cluster = clusters_[c];
      Group group;
      group.reasons = std::move(cluster.reasons);
      group.apart = std::move(apart[c]);
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
  // The readers of a buffer are siblings only if there are at most this many. A scalar, for example, may have many
  // readers.
  static constexpr size_t kMaxReaders = 12;

  using Sizes = std::pair<size_t, size_t>;  // Numbers of members of two clusters.
  struct Refusal {
    Sizes sizes{0, 0};  // Sizes when the two were tried.
    const char* reason = nullptr;
  };
  Sizes sizes_of(int a, int b) const { return {clusters_[a].members.size(), clusters_[b].members.size()}; }

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

  /// Merges two clusters if that is legal and worth it. Otherwise the reason is kept, and the pair is not tried again before
  /// one of the two has grown.
  bool try_merge(int a, int b, bool connected) {
    if (a == b || clusters_[a].members.empty() || clusters_[b].members.empty()) return false;
    Refusal& refusal = refused_[{a, b}];
    const Sizes sizes = sizes_of(a, b);
    if (refusal.sizes == sizes) return false;
    refusal.sizes = sizes;
    refusal.reason = merge(a, b, connected);
    return refusal.reason == nullptr;
  }

  /// Merges a and b into one cluster. Returns null, or the reason why they stay apart.
  const char* merge(int a, int b, bool connected) {
    if (!parameters_.empty() && parameters_[clusters_[a].members[0].node] != parameters_[clusters_[b].members[0].node])
      return "one depends on parameters alone, and its result is kept between calls";
    for (const int cluster : {a, b})
      if (is_alone(schedule_, clusters_[cluster].members[0].node))
        return "the driver's compiler ended on a kernel of one of them";
    if (clusters_[a].members.size() + clusters_[b].members.size() > 200) return "one kernel would have more than 200 nodes";
    if (!connected && clusters_[b].members[0].node < clusters_[a].members[0].node && clusters_[a].main == ir::kNone)
      std::swap(a, b);
    if (!connected && (clusters_[a].main != ir::kNone || clusters_[b].main != ir::kNone))
      return "a hand-written kernel takes in only what reads its result";
    if (delays(a, b, connected)) return "one waits for a collective, and the other can run meanwhile";
    const char* why_not = nullptr;
    auto merged = combine(schedule_, clusters_[a], clusters_[b], why_not);
    if (!merged) return why_not;
    const FuseRule* rule = find_rule({schedule_, caps_, clusters_[a], clusters_[b], *merged, connected}, why_not);
    if (!rule) return why_not;
    if (around(a, b) || around(b, a)) return "another kernel has to run between the two";
    if (!connected && (direct(a, b) || direct(b, a))) return "one reads what the other stores";
    merged->reasons.push_back(std::string(rule->name) + ": " + rule->reason);
    for (const Member& member : clusters_[b].members) owner_[member.node] = a;
    clusters_[b] = {};
    clusters_[a] = std::move(*merged);
    return nullptr;
  }

  /// True if merging a and b would make work wait for a collective during which it could otherwise run. Elementwise
  /// work that only b reads does not count, because storing and loading its result takes as long.
  bool delays(int a, int b, bool connected) const {
    if (waits_.empty()) return false;
    const auto waits = [&](int c) {
      std::set<NodeId> result;
      for (const Member& member : clusters_[c].members) result.insert(waits_[member.node].begin(), waits_[member.node].end());
      return result;
    };
    if (waits(a) == waits(b)) return false;
    if (!connected || !clusters_[a].pointwise()) return true;
    for (const ClusterAccess& access : clusters_[a].accesses)
      if (access.store)
        for (const NodeId reader : readers_[access.buffer])
          if (owner_[reader] != a && owner_[reader] != b) return true;
    return false;
  }

  /// Returns, for each cluster, the clusters that it could have been merged with, each once, and why they stayed apart.
  std::vector<std::vector<Neighbour>> neighbours() const {
    using Relation = Neighbour::Relation;
    std::vector<std::vector<Neighbour>> result(clusters_.size());
    std::set<std::pair<int, int>> seen;
    const auto add = [&](NodeId from, NodeId to, BufferId buffer, Relation relation, const char* reason) {
      if (seen.insert({owner_[from], owner_[to]}).second) result[owner_[from]].push_back({relation, to, buffer, reason});
    };
    for (NodeId producer = 0; producer < static_cast<NodeId>(owner_.size()); ++producer)
      for (const BufferId buffer : ir::writes(schedule_.graph.nodes[producer]))
        for (const NodeId consumer : readers_[buffer]) {
          if (consumer <= producer || owner_[consumer] == owner_[producer]) continue;
          const char* tried = why_apart(owner_[producer], owner_[consumer]);
          const char* reason = tried ? tried : "fusion is off";
          add(producer, consumer, buffer, Relation::kConsumer, reason);
          add(consumer, producer, buffer, Relation::kProducer, reason);
        }
    for (size_t buffer = 0; buffer < readers_.size(); ++buffer) {
      if (readers_[buffer].size() > kMaxReaders) continue;
      for (const NodeId a : readers_[buffer])
        for (const NodeId b : readers_[buffer]) {
          const char* reason = owner_[a] == owner_[b] ? nullptr : why_apart(owner_[a], owner_[b]);
          if (!reason) continue;
          add(a, b, static_cast<BufferId>(buffer), Relation::kSibling, reason);
          add(b, a, static_cast<BufferId>(buffer), Relation::kSibling, reason);
        }
    }
    return result;
  }

  /// Returns why the last attempt to merge the two failed. Null if there was no attempt since one of them has grown.
  const char* why_apart(int a, int b) const {
    const auto it = refused_.find({a, b});
    return it == refused_.end() || it->second.sizes != sizes_of(a, b) ? nullptr : it->second.reason;
  }

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

  /// Returns a topological order of the clusters. Of several ready clusters, the one with the earliest first node comes
  /// first.
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

  /// Leaves out loop nests whose results nothing reads from memory: what a template reads as a copy that computes them again.
  std::vector<int> without_unread(const std::vector<int>& order) const {
    std::vector<bool> needed = visible_buffers(schedule_.graph);
    const auto is_needed = [&](const Member& member) {
      const Node& node = schedule_.graph.nodes[member.node];
      const std::vector<BufferId> written = ir::writes(node);
      return !is_loop_nest(node) || std::any_of(written.begin(), written.end(), [&](BufferId b) { return needed[b]; });
    };
    std::vector<int> kept;
    for (auto c = order.rbegin(); c != order.rend(); ++c) {
      const std::vector<Member>& members = clusters_[*c].members;
      if (std::none_of(members.begin(), members.end(), is_needed)) continue;
      for (const Member& member : members)
        for (const BufferId b : buffers_read(schedule_, member.node)) needed[b] = true;
      kept.push_back(*c);
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  Schedule& schedule_;
  const Caps& caps_;
  Dependences dependences_;
  std::vector<bool> parameters_;  // Nodes whose results are kept between calls. Empty: none are.
  std::vector<std::set<NodeId>> waits_;
  std::vector<Cluster> clusters_;  // Index = the cluster's first node. Merged clusters are empty.
  std::vector<int> owner_;         // Cluster of each node.
  std::vector<std::vector<NodeId>> readers_;
  std::map<std::pair<int, int>, Refusal> refused_;  // The last attempt for each pair.
};

}  // namespace

void fuse(Schedule& schedule, const Caps& caps) {
  Fuser fuser(schedule, caps);
  fuser.run();
  fuser.emit();
}

void one_group_per_node(Schedule& schedule, const Caps& caps) { Fuser(schedule, caps).emit(); }

}  // namespace ocl::schedule
