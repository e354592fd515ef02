// csrc/schedule/loop_order.cpp: pass: orders the loops of each group by the strides of its largest access, collapses
// loops and chooses a vector width.
#include "csrc/schedule/loop_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"
#include "csrc/schedule/vector_width.h"

namespace ocl::schedule {

namespace {

/// Computes the strides of accesses for each loop. It caches them, because most accesses of a group are alike.
class Strides {
 public:
  Strides(const Graph& graph, const std::vector<Symbol>& loops, const ir::Ranges& ranges)
      : graph_(graph), loops_(loops), ranges_(ranges) {}

  std::vector<std::optional<IndexExpr>> of(const Access& access) {
    // Comparing with more entries would take as long as computing the strides again.
    constexpr size_t kMostCached = 16;
    const ir::Shape& strides = *graph_.buffers[access.buffer].strides;
    for (const CachedStrides& cached : cached_)
      if (cached.coords == access.coords && cached.strides == strides) return cached.per_loop;
    CachedStrides entry{access.coords, strides, loop_strides(graph_, access.buffer, access.coords, loops_, ranges_)};
    if (cached_.size() < kMostCached) cached_.push_back(entry);
    return entry.per_loop;
  }

 private:
  struct CachedStrides {
    std::vector<IndexExpr> coords;
    ir::Shape strides;
    std::vector<std::optional<IndexExpr>> per_loop;
  };
  const Graph& graph_;
  const std::vector<Symbol>& loops_;
  const ir::Ranges& ranges_;
  std::vector<CachedStrides> cached_;
};

class GroupLoops {
 public:
  GroupLoops(Graph& graph, Group& group) : graph_(graph), group_(group), nodes_(group.nodes()) { update(); }

  void order() {
    const AccessStrides* main = dominant();
    if (!main) return;
    LoopMap map;
    ir::Shape sizes, reduce_sizes;
    permute(*main, SymbolKind::kLoop, group_.sizes, 0, sizes, map);
    permute(*main, SymbolKind::kReduce, group_.reduce_sizes, group_.sizes.size(), reduce_sizes, map);
    const bool moves = std::ranges::any_of(map, [](const auto& loop) {
      const auto& [from, to] = loop;
      return !(to == IndexExpr::symbol(from.kind, from.index));
    });
    if (moves) apply(map, sizes, reduce_sizes);
  }

  void collapse() {
    for (const SymbolKind kind : {SymbolKind::kLoop, SymbolKind::kReduce})
      for (int last = count(kind) - 1; last > 0; --last) {
        int first = last;
        while (first > 0 && collapsible(kind, first - 1)) --first;
        // Merge all collapsible loops. If that makes an offset more complex, merge as many of the inner ones as
        // possible.
        while (first < last && !merge(kind, first, last)) ++first;
        last = first;
      }
  }

  void choose_width(const Caps& caps, bool scalar) { choose_vector_width(graph_, group_, accesses_, caps, scalar); }

  void at_least_one_loop() {
    if (!group_.sizes.empty()) return;
    apply({}, {1}, group_.reduce_sizes);
  }

 private:
  int count(SymbolKind kind) const {
    return static_cast<int>(kind == SymbolKind::kLoop ? group_.sizes.size() : group_.reduce_sizes.size());
  }
  Loops loops() const { return {group_.sizes, group_.reduce_sizes}; }
  size_t position(SymbolKind kind, int loop) const {
    return static_cast<size_t>(loop) + (kind == SymbolKind::kLoop ? 0 : group_.sizes.size());
  }

  void update() {
    accesses_.clear();
    const Loops nest = loops();
    const ir::Ranges ranges = nest.ranges(graph_);
    const std::vector<Symbol> symbols = nest.symbols();
    const ir::Shape extents = nest.extents();
    Strides strides(graph_, symbols, ranges);
    for (const NodeId id : nodes_)
      for (const Access& access : accesses(graph_.nodes[id])) {
        AccessStrides entry{strides.of(access), access, 0, size_bytes(graph_.buffers[access.buffer].dtype), access.store};
        entry.bytes = static_cast<double>(entry.element_bytes);
        // An index that was loaded may differ in each iteration.
        const bool by_loaded = gathers(access.coords);
        for (size_t i = 0; i < symbols.size(); ++i)
          if (by_loaded || !entry.strides[i] || !entry.strides[i]->is_const(0)) entry.bytes *= typical(graph_, extents[i]);
        accesses_.push_back(std::move(entry));
      }
  }

  /// Returns the access that decides the order: the one with the most bytes. Of several with equal bytes, a store wins,
  /// because its cache lines are both read and written.
  const AccessStrides* dominant() const {
    const AccessStrides* best = nullptr;
    for (const AccessStrides& access : accesses_) {
      if (std::any_of(access.strides.begin(), access.strides.end(), [](const auto& s) { return !s; })) continue;
      if (!best || access.bytes > best->bytes || (access.bytes == best->bytes && access.store && !best->store)) best = &access;
    }
    return best;
  }

  void permute(const AccessStrides& main, SymbolKind kind, const ir::Shape& old, size_t first, ir::Shape& sizes,
               LoopMap& map) const {
    std::vector<int> order(old.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<double> stride(old.size());
    for (size_t i = 0; i < old.size(); ++i) {
      stride[i] = std::abs(typical(graph_, *main.strides[first + i]));
      // The access does not depend on this loop, so the loop becomes the outermost.
      if (stride[i] == 0) stride[i] = INFINITY;
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return stride[a] > stride[b]; });
    for (size_t i = 0; i < order.size(); ++i) {
      sizes.push_back(old[order[i]]);
      map.emplace(Symbol{kind, order[i]}, IndexExpr::symbol(kind, static_cast<int>(i)));
    }
  }

  /// True if loops a and a + 1 access every buffer like a single loop, and no index op uses them.
  bool collapsible(SymbolKind kind, int a) const {
    const size_t outer = position(kind, a);
    const ir::Shape& sizes = kind == SymbolKind::kLoop ? group_.sizes : group_.reduce_sizes;
    const ir::Ranges ranges = loops().ranges(graph_);
    // An empty loop cannot be merged, because that would divide by its size.
    if (sizes[a + 1].is_const(0)) return false;
    for (const AccessStrides& access : accesses_) {
      const auto &x = access.strides[outer], &y = access.strides[outer + 1];
      if (!x || !y || !simplify(*x - *y * sizes[a + 1], ranges).is_const(0)) return false;
    }
    for (const NodeId id : nodes_)
      for (const ir::Op& op : graph_.nodes[id].body.ops) {
        if (op.code != ir::OpCode::kIndex) continue;
        if (op.index[0].uses(Symbol{kind, a}) || op.index[0].uses(Symbol{kind, a + 1})) return false;
      }
    return true;
  }

  /// Merges the loops `first` to `last` into one. Returns false and changes nothing if an offset would become more
  /// complex.
  bool merge(SymbolKind kind, int first, int last) {
    LoopMap map;
    for (int i = 0; i < count(kind); ++i)
      map.emplace(Symbol{kind, i}, IndexExpr::symbol(kind, i > last ? i - (last - first) : i));
    ir::Shape sizes = group_.sizes, reduce_sizes = group_.reduce_sizes;
    ir::Shape& changed = kind == SymbolKind::kLoop ? sizes : reduce_sizes;
    const IndexExpr all = IndexExpr::symbol(kind, first);
    IndexExpr inner = 1;
    for (int i = last; i >= first; --i) {
      const IndexExpr outer_part = floordiv(all, inner);
      map[Symbol{kind, i}] = i == first ? outer_part : mod(outer_part, changed[i]);
      inner = inner * changed[i];
    }
    changed[first] = simplify(inner, graph_.ranges());
    changed.erase(changed.begin() + first + 1, changed.begin() + last + 1);
    const std::vector<Node> saved = copies();
    const ir::Shape old_sizes = group_.sizes, old_reduce = group_.reduce_sizes;
    apply(map, sizes, reduce_sizes);
    const size_t at = position(kind, first);
    if (std::ranges::all_of(accesses_, [&](const AccessStrides& access) { return access.strides[at].has_value(); }))
      return true;
    group_.sizes = old_sizes;
    group_.reduce_sizes = old_reduce;
    for (size_t i = 0; i < nodes_.size(); ++i) graph_.nodes[nodes_[i]] = saved[i];
    update();
    return false;
  }

  std::vector<Node> copies() const {
    std::vector<Node> result;
    for (const NodeId id : nodes_) result.push_back(graph_.nodes[id]);
    return result;
  }

  void apply(const LoopMap& map, const ir::Shape& sizes, const ir::Shape& reduce_sizes) {
    group_.sizes = sizes;
    group_.reduce_sizes = reduce_sizes;
    const ir::Ranges ranges = loops().ranges(graph_);
    LoopRewriter rewriter(map, ranges);
    for (const NodeId id : nodes_) {
      Node& node = graph_.nodes[id];
      rewriter.rewrite(node);
      node.sizes = sizes;
      if (!node.reduce_sizes.empty()) node.reduce_sizes = reduce_sizes;
    }
    update();
  }

  Graph& graph_;
  Group& group_;
  const std::vector<NodeId> nodes_;
  std::vector<AccessStrides> accesses_;
};

}  // namespace

void loop_order(Schedule& schedule, const Caps& caps) {
  for (Group& group : schedule.groups) {
    if (group.kind != GroupKind::kLoops) continue;
    GroupLoops loops(schedule.graph, group);
    loops.order();
    loops.collapse();
    loops.choose_width(caps, is_alone(schedule, group.nodes()[0]));
    loops.at_least_one_loop();
  }
}

}  // namespace ocl::schedule
