// csrc/schedule/inline_maps.cpp: pass: moves bodies of Map nodes into the nodes that read them.
#include "csrc/schedule/inline_maps.h"

#include <algorithm>
#include <set>

#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {

namespace {

constexpr size_t kMaxBodyOps = 400;  // Most ops of a body.
constexpr size_t kMaxLoads = 48;     // Most buffers that one body accesses.

size_t loaded_buffers(const Node& a, const Node& b) {
  std::set<BufferId> buffers;
  for (const Node* node : {&a, &b})
    for (const Access& access : accesses(*node)) buffers.insert(access.buffer);
  return buffers.size();
}

class Inliner {
 public:
  Inliner(Schedule& schedule, const Caps& caps)
      : schedule_(schedule),
        graph_(schedule.graph),
        caps_(caps),
        visible_(visible_buffers(schedule.graph)),
        parameters_(nodes_of_parameters(schedule)),
        uses_(schedule),
        dependences_(node_dependences(schedule)) {}

  /// Inlines a Map with a single reader, if the reader is a Map that does not evaluate it much more often.
  void chains() {
    for (NodeId p = last(); p >= 0; --p) {
      if (!candidate(p)) continue;
      const BufferId buffer = graph_.nodes[p].stores[0].buffer;
      if (visible_[buffer] || uses_.readers[buffer].size() != 1) continue;
      const NodeId c = uses_.readers[buffer][0];
      if (graph_.nodes[c].kind != NodeKind::kMap || !legal(p, c)) continue;
      const double repeats = evaluations(c, buffer) / count(p);
      if (repeats > 1.5 && !trivial(p)) continue;
      move_into(p, c);
    }
  }

  /// Inlines values with several readers, and values that are reduced, if that is cheaper.
  void by_cost() {
    for (NodeId p = last(); p >= 0; --p)
      if (candidate(p) && !follows_template(p)) inline_if_cheaper(p);
  }

 private:
  NodeId last() const { return static_cast<NodeId>(graph_.nodes.size()) - 1; }
  double count(NodeId node) const { return std::max(1.0, typical_product(graph_, loops_of(graph_.nodes[node]).extents())); }

  bool candidate(NodeId p) const {
    const Node& node = graph_.nodes[p];
    return node.kind == NodeKind::kMap && node.stores.size() == 1 &&
           graph_.buffers[node.stores[0].buffer].role == ir::BufferRole::kIntermediate &&
           uses_.writers[node.stores[0].buffer].size() == 1 && can_inline(node, node.stores[0]);
  }

  /// True for a cast, a negation or a constant, which are cheaper to compute again than to store.
  bool trivial(NodeId p) const {
    size_t loads = 0;
    for (const ir::Op& op : graph_.nodes[p].body.ops) loads += op.code == ir::OpCode::kLoad;
    return loads <= 1 && op_cost(graph_.nodes[p]) <= 2;
  }

  /// True if p copies elements that are apart in memory to neighbouring places, and c reads each of them many times. Inlined,
  /// each of these reads would collect the elements again.
  bool brings_together(NodeId p, NodeId c) const {
    constexpr double kMany = 16;
    const Node& producer = graph_.nodes[p];
    const ir::Op& load = producer.body.ops[0];
    if (load.code != ir::OpCode::kLoad || producer.sizes.empty() || !trivial(p)) return false;
    if (graph_.nodes[c].kind != NodeKind::kReduce || !graph_.buffers[load.buffer].strides) return false;
    const Loops loops = loops_of(producer);
    const std::optional<ir::IndexExpr> step =
        loop_strides(graph_, load.buffer, load.index, {loops.symbols().back()}, loops.ranges(graph_))[0];
    return step && step->is_const() && step->constant() > 1 && evaluations(c, producer.stores[0].buffer) >= kMany * count(p);
  }

  double evaluations(NodeId c, BufferId buffer) const {
    std::vector<Coords> distinct;
    for (const Access& access : accesses(graph_.nodes[c]))
      if (!access.store && access.buffer == buffer &&
          std::find(distinct.begin(), distinct.end(), access.coords) == distinct.end())
        distinct.push_back(access.coords);
    return count(c) * static_cast<double>(distinct.size());
  }

  /// True if p's inputs have the same values when c runs, and if the combined kernel is not too large.
  bool legal(NodeId p, NodeId c) const {
    const Node &producer = graph_.nodes[p], &consumer = graph_.nodes[c];
    if (is_alone(schedule_, p) || is_alone(schedule_, c)) return false;
    // The result of p is kept between calls, so c must not compute it again.
    if (!parameters_.empty() && parameters_[p] && !parameters_[c] && !trivial(p)) return false;
    if (!is_loop_nest(consumer) || producer.body.ops.size() + consumer.body.ops.size() > kMaxBodyOps) return false;
    if (loaded_buffers(producer, consumer) > kMaxLoads) return false;
    for (const Access& access : accesses(producer)) {
      if (access.store) continue;
      for (const NodeId w : uses_.writers[access.buffer])
        if (w > p && (w < c || (w == c && !stays_in_place(producer, consumer, access)))) return false;
    }
    return true;
  }

  /// The consumer overwrites a buffer that the producer reads. Returns true if, with the producer inlined, each
  /// iteration reads only the element that it writes.
  bool stays_in_place(const Node& producer, const Node& consumer, const Access& read) const {
    for (const ir::Op& op : consumer.body.ops) {
      if (op.code != ir::OpCode::kLoad || op.buffer != producer.stores[0].buffer) continue;
      const ir::Ranges ranges = loops_of(consumer).ranges(graph_);
      const auto loops = solve(loops_of(producer), producer.stores[0].index, op.index, ranges);
      if (!loops) return false;
      const Coords coords = substitute(read.coords, *loops, ranges);
      for (const ir::Store& store : consumer.stores)
        if (store.buffer == read.buffer && store.index != coords) return false;
    }
    return true;
  }

  /// True if reader c reads each element of p's buffer once, in any order.
  bool elementwise(NodeId p, NodeId c) const {
    const Node &producer = graph_.nodes[p], &consumer = graph_.nodes[c];
    const Loops loops = loops_of(consumer);
    if (!same_count(loops.extents(), producer.sizes)) return false;
    for (const Access& access : accesses(consumer)) {
      if (access.store || access.buffer != producer.stores[0].buffer) continue;
      const auto map = solve(loops, access.coords, producer.stores[0].index, loops_of(producer).ranges(graph_));
      if (!map || map->size() != loops.symbols().size()) return false;
    }
    return true;
  }

  /// True if p can be the epilogue of a template: it reads the template's result element by element, and its other
  /// inputs do not depend on that template.
  bool follows_template(NodeId p) const {
    const Node& node = graph_.nodes[p];
    for (const Access& access : accesses(node)) {
      if (access.store || uses_.writers[access.buffer].size() != 1) continue;
      const NodeId main = uses_.writers[access.buffer][0];
      if (!schedule_.launches.count(main) || !same_count(node.sizes, graph_.nodes[main].sizes)) continue;
      bool early = true;
      for (const Access& other : accesses(node))
        if (!other.store && other.buffer != access.buffer)
          for (const NodeId w : uses_.writers[other.buffer]) early = early && (w > p || !reaches(dependences_, main, w, true));
      if (early) return true;
    }
    return false;
  }

  /// Moves the producer into its readers if that costs less memory traffic than storing its value.
  void inline_if_cheaper(NodeId p) {
    const Node& producer = graph_.nodes[p];
    const BufferId buffer = producer.stores[0].buffer;
    std::vector<NodeId> targets;
    int elementwise_maps = 0;
    bool forced = visible_[buffer], reduced = false, by_row = false;
    for (const NodeId c : uses_.readers[buffer]) {
      const Node& consumer = graph_.nodes[c];
      if (!is_loop_nest(consumer)) {
        forced = true;
      } else if (consumer.kind == NodeKind::kMap && elementwise(p, c)) {
        ++elementwise_maps;
      } else if (!legal(p, c) || brings_together(p, c)) {
        forced = true;
      } else {
        targets.push_back(c);
        if (consumer.kind != NodeKind::kReduce || !elementwise(p, c)) continue;
        reduced = true;
        by_row |= reduction_strategy(graph_, consumer, caps_) != LoopStrategy::kSequential &&
                  consumer.stage == ir::ReductionStage::kWhole;
      }
    }
    if (targets.empty()) return;
    const double n = count(p), ops = op_cost(producer) / 4, input = bytes_read(graph_, producer),
                 size = typical_bytes(graph_, buffer);
    double recomputed = 0, reread = 0;
    for (const NodeId c : targets) {
      const double e = evaluations(c, buffer), share = std::min(1.0, e / n);
      recomputed += input * share + (trivial(p) && e > n ? 0 : e * ops);
      reread += size * share;
    }
    const bool stays = forced || elementwise_maps > 0;
    const double inlined =
        recomputed + (stays ? input + n * ops : 0) + (forced || elementwise_maps > 1 ? size * (1 + elementwise_maps) : 0);
    double kept = input + n * ops + size + reread + size * elementwise_maps;
    // The reduction can store the value while it computes.
    if (reduced) kept -= size;
    // A value in memory prevents fusing the passes over a row into one launch.
    if (by_row) kept += 2 * size;
    // The value needs a launch of its own.
    if (!reduced && !stays && n > 65536) kept += caps_.is_cpu ? 65536 : 4 << 20;
    if (inlined > kept) return;
    for (const NodeId c : targets) move_into(p, c);
  }

  void move_into(NodeId p, NodeId c) {
    const Node& producer = graph_.nodes[p];
    const BufferId buffer = producer.stores[0].buffer;
    inline_producer(graph_.nodes[c], producer, producer.stores[0], graph_);
    std::vector<ir::Origin>& inlined = graph_.nodes[c].inlined;
    inlined.push_back(producer.origin);
    inlined.insert(inlined.end(), producer.inlined.begin(), producer.inlined.end());
    std::erase(uses_.readers[buffer], c);
    for (const BufferId b : ir::reads(producer)) {
      std::vector<NodeId>& readers = uses_.readers[b];
      if (std::find(readers.begin(), readers.end(), c) == readers.end())
        readers.insert(std::upper_bound(readers.begin(), readers.end(), c), c);
    }
    // p is dead, so it reads nothing any more.
    if (uses_.readers[buffer].empty() && !visible_[buffer])
      for (const BufferId b : ir::reads(producer)) std::erase(uses_.readers[b], p);
  }

  Schedule& schedule_;
  Graph& graph_;
  const Caps& caps_;
  const std::vector<bool> visible_, parameters_;
  Accesses uses_;
  const Dependences dependences_;
};

}  // namespace

void inline_maps(Schedule& schedule, const Caps& caps) {
  for (Node& node : schedule.graph.nodes) {
    if (!is_loop_nest(node)) continue;
    drop_extent_1_loops(node, schedule.graph);
    tidy(node);
  }
  Inliner(schedule, caps).chains();
  drop_dead_nodes(schedule);
  Inliner(schedule, caps).by_cost();
  drop_dead_nodes(schedule);
  Inliner(schedule, caps).chains();
  drop_dead_nodes(schedule);
}

}  // namespace ocl::schedule
