// csrc/schedule/cluster.cpp: combines the loops of two clusters and orders their members in phases.
#include "csrc/schedule/cluster.h"

#include <algorithm>
#include <set>

#include "csrc/schedule/dependence.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {

int Cluster::inner_phases() const {
  return static_cast<int>(std::count_if(phases.begin(), phases.end(), [](const Phase& phase) { return phase.inner; }));
}

std::vector<BufferId> Cluster::buffers() const {
  std::set<BufferId> result(opaque.begin(), opaque.end());
  result.insert(extra_outputs.begin(), extra_outputs.end());
  for (const ClusterAccess& access : accesses) result.insert(access.buffer);
  return {result.begin(), result.end()};
}

Cluster cluster_of(const Schedule& schedule, ir::NodeId id, const Caps& caps) {
  const Graph& graph = schedule.graph;
  const Node& node = graph.nodes[id];
  Cluster cluster;
  cluster.loops = loops_of(node);
  Member member{id, identity(cluster.loops), is_reduction(node)};
  if (is_loop_nest(node)) {
    for (Access& access : accesses(node))
      cluster.accesses.push_back({access.buffer, std::move(access.coords), access.store, access.partial, id});
    cluster.scan = node.kind == NodeKind::kScan;
    if (cluster.scan)
      cluster.strategy = scan_strategy(graph, node, caps);
    else if (node.kind == NodeKind::kReduce)
      cluster.strategy = reduction_strategy(graph, node, caps);
    cluster.phases.push_back({member.inner, {id}});
  } else {
    cluster.opaque = buffers_read(schedule, id);
    if (node.kind == NodeKind::kCall) {
      cluster.call = id;
      cluster.opaque.insert(cluster.opaque.end(), node.outputs.begin(), node.outputs.end());
    } else {
      cluster.main = id;
      cluster.extra_outputs.assign(node.outputs.begin() + 1, node.outputs.end());
      Coords coords;
      for (size_t d = 0; d < node.sizes.size(); ++d)
        coords.push_back(node.sizes[d].is_const(1) ? IndexExpr(0) : IndexExpr::loop(static_cast<int>(d)));
      cluster.accesses.push_back({node.outputs[0], coords, true, false, id});
    }
  }
  cluster.members.push_back(std::move(member));
  return cluster;
}

namespace {

/// Returns candidate maps from the loops of `mover` to the loops of `fixed`.
std::vector<LoopMap> proposals(const Graph& graph, const Cluster& fixed, const Cluster& mover) {
  std::vector<LoopMap> result;
  const std::vector<Symbol> from = mover.loops.symbols(), to = fixed.loops.symbols();
  const auto by_position = [&] {
    LoopMap map;
    for (size_t i = 0; i < from.size(); ++i) map.emplace(from[i], IndexExpr::symbol(to[i].kind, to[i].index));
    result.push_back(std::move(map));
  };
  // If both reduce, only equal loops match.
  if (mover.has_reduction()) {
    if (mover.loops.sizes == fixed.loops.sizes && mover.loops.reduce_sizes == fixed.loops.reduce_sizes) by_position();
    return result;
  }
  const ir::Ranges ranges = fixed.loops.ranges(graph);
  // First match what one cluster stores and the other loads.
  for (const bool stores : {true, false})
    for (const ClusterAccess& m : mover.accesses)
      for (const ClusterAccess& f : fixed.accesses) {
        if (m.buffer != f.buffer || (m.store || f.store) != stores || gathers(m.coords) || gathers(f.coords) ||
            result.size() >= 6)
          continue;
        auto map = solve(mover.loops, m.coords, f.coords, ranges);
        if (map && map->size() == from.size() && std::find(result.begin(), result.end(), *map) == result.end())
          result.push_back(std::move(*map));
      }
  if (mover.loops.sizes == fixed.loops.extents() || mover.loops.sizes == fixed.loops.sizes) by_position();
  return result;
}

/// True if every buffer that one side stores is accessed by the other side only at the same coordinates, or stored elsewhere.
bool agree(const Graph& graph, const Cluster& a, const std::vector<ClusterAccess>& b, const std::vector<BufferId>& b_opaque) {
  std::map<BufferId, std::vector<const ClusterAccess*>> by_buffer;
  for (const ClusterAccess& x : a.accesses) by_buffer[x.buffer].push_back(&x);
  const auto contains = [](const std::vector<BufferId>& list, BufferId buffer) {
    return std::find(list.begin(), list.end(), buffer) != list.end();
  };
  const auto elsewhere = [](const ClusterAccess& x) { return x.partial || gathers(x.coords); };
  for (const ClusterAccess& y : b) {
    if ((y.store && contains(a.opaque, y.buffer)) || contains(a.extra_outputs, y.buffer)) return false;
    const auto it = by_buffer.find(y.buffer);
    if (it == by_buffer.end()) continue;
    for (const ClusterAccess* x : it->second)
      if ((x->store || y.store) && (elsewhere(*x) || elsewhere(y) || x->coords != y.coords) &&
          !(x->store && y.store && writes_disjoint(graph, graph.nodes[x->node], graph.nodes[y.node], y.buffer)))
        return false;
  }
  for (const ClusterAccess& x : a.accesses)
    if (x.store && contains(b_opaque, x.buffer)) return false;
  return true;
}

/// Assigns a level to each member: outer phases have even levels, inner phases odd ones. A member gets the first level
/// at which its inputs are available. A Map in an inner phase moves to the phase of the node that uses its value.
/// Returns false if no order of phases is possible.
bool assign_phases(const Graph& graph, Cluster& cluster) {
  const size_t count = cluster.members.size();
  std::map<ir::NodeId, size_t> position;
  for (size_t i = 0; i < count; ++i) position.emplace(cluster.members[i].node, i);
  struct Edge {
    size_t from, to;
    bool value;  // `to` reads what `from` writes.
  };
  std::vector<Edge> edges;
  // Buffer -> members that access it, and whether they store to it.
  std::map<BufferId, std::vector<std::pair<size_t, bool>>> touched;
  for (const ClusterAccess& access : cluster.accesses)
    touched[access.buffer].push_back({position.at(access.node), access.store});
  for (const auto& [buffer, list] : touched)
    for (const auto& [x, x_stores] : list)
      for (const auto& [y, y_stores] : list)
        if (x < y && (x_stores || y_stores)) edges.push_back({x, y, x_stores && !y_stores});

  std::vector<int> level(count);
  for (size_t i = 0; i < count; ++i) level[i] = cluster.members[i].inner ? 1 : 0;
  const auto is_reduce = [&](size_t i) { return graph.nodes[cluster.members[i].node].kind == NodeKind::kReduce; };
  const int limit = 2 * static_cast<int>(count) + 2;
  for (bool changed = true; changed;) {
    changed = false;
    const auto raise = [&](size_t i, int least) {
      if (cluster.members[i].inner ? least % 2 == 0 : least % 2 == 1) ++least;
      if (level[i] >= least) return;
      level[i] = least;
      changed = true;
    };
    for (const Edge& edge : edges) {
      const bool from_inner = cluster.members[edge.from].inner, to_inner = cluster.members[edge.to].inner;
      if (!from_inner) {
        raise(edge.to, level[edge.from]);
      } else if (is_reduce(edge.from)) {
        raise(edge.to, level[edge.from] + 1);
      } else if (to_inner) {
        raise(edge.to, level[edge.from]);
        if (edge.value) raise(edge.from, level[edge.to]);
      } else {
        return false;  // An outer node runs once per outer element, so it cannot read values of reduction elements.
      }
    }
    if (*std::max_element(level.begin(), level.end()) > limit) return false;
  }
  cluster.phases.clear();
  if (!cluster.has_reduction()) {
    cluster.phases.push_back({false, {}});
    for (const Member& member : cluster.members) cluster.phases[0].nodes.push_back(member.node);
    return true;
  }
  for (int l = 0; l <= limit; ++l) {
    Phase phase{l % 2 == 1, {}};
    for (size_t i = 0; i < count; ++i)
      if (level[i] == l) phase.nodes.push_back(cluster.members[i].node);
    if (!phase.nodes.empty()) cluster.phases.push_back(std::move(phase));
  }
  return true;
}

/// The conditions for combining two clusters, in the order in which an attempt tests them. If all attempts fail, the
/// condition that is reported is the latest one that any attempt has reached.
enum Obstacle { kLoops, kElements, kPhases };
constexpr const char* kObstacles[] = {
    "their loops differ: no loops of one visit each element of the other once",
    "one needs elements that other iterations of the other compute",
    "a value of single elements would be needed before or after the pass over the row that computes it",
};

std::optional<Cluster> combine_at(const Schedule& schedule, const Cluster& fixed, const Cluster& mover, const LoopMap& map,
                                  Obstacle& met) {
  const Graph& graph = schedule.graph;
  bool inner = false;
  if (!mover.has_reduction()) {
    inner = fixed.has_reduction() && is_bijection(graph, mover.loops, map, fixed.loops, false);
    if (!inner && !is_bijection(graph, mover.loops, map, fixed.loops, true)) return std::nullopt;
  }
  const ir::Ranges ranges = fixed.loops.ranges(graph);
  std::vector<ClusterAccess> moved = mover.accesses;
  for (ClusterAccess& access : moved) access.coords = substitute(access.coords, map, ranges);
  met = std::max(met, kElements);
  if (!agree(graph, fixed, moved, mover.opaque)) return std::nullopt;

  Cluster result = fixed;
  result.accesses.insert(result.accesses.end(), std::make_move_iterator(moved.begin()), std::make_move_iterator(moved.end()));
  result.opaque.insert(result.opaque.end(), mover.opaque.begin(), mover.opaque.end());
  for (const Member& member : mover.members)
    result.members.push_back({member.node, compose(member.map, map, ranges), mover.has_reduction() ? member.inner : inner});
  std::sort(result.members.begin(), result.members.end(), [](const Member& a, const Member& b) { return a.node < b.node; });
  result.reasons.insert(result.reasons.end(), mover.reasons.begin(), mover.reasons.end());
  met = std::max(met, kPhases);
  if (!assign_phases(graph, result)) return std::nullopt;
  return result;
}

}  // namespace

std::optional<Cluster> combine(const Schedule& schedule, const Cluster& a, const Cluster& b, const char*& why_not) {
  const auto apart = [&](const char* reason) {
    why_not = reason;
    return std::nullopt;
  };
  if (a.scan || b.scan) return apart("a scan runs alone");
  if (a.call != ir::kNone || b.call != ir::kNone) return apart("an op that runs eagerly is no kernel of ours");
  if (b.main != ir::kNone) return apart("a hand-written kernel reads its operands from memory, in an order of its own");
  if (a.main != ir::kNone && !b.pointwise())
    return apart("a hand-written kernel ends with elementwise work, and this one reduces");
  Obstacle met = kLoops;
  const auto attempt = [&](const Cluster& fixed, const Cluster& mover) -> std::optional<Cluster> {
    for (const LoopMap& map : proposals(schedule.graph, fixed, mover))
      if (auto result = combine_at(schedule, fixed, mover, map, met)) return result;
    return std::nullopt;
  };
  const bool a_fixed = a.main != ir::kNone || a.has_reduction();
  const bool b_fixed = b.has_reduction();
  if (a_fixed || !b_fixed)
    if (auto result = attempt(a, b)) return result;
  if (b_fixed || !a_fixed)
    if (!(a_fixed && b_fixed))
      if (auto result = attempt(b, a)) return result;
  return apart(kObstacles[met]);
}

}  // namespace ocl::schedule
