// csrc/schedule/loop_order.cpp: pass: orders the loops of each group by the strides of its largest access, collapses
// loops and chooses a vector width.
#include "csrc/schedule/loop_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {

using ir::Graph;
using ir::IndexExpr;
using ir::Node;
using ir::NodeId;
using ir::Symbol;
using ir::SymbolKind;

namespace {

// Loop numbers that stand for the number of a vector, and for the lane in it.
constexpr int kVectorLoop = 1 << 20;
// A loop with a tail of single elements has at least so many vectors.
constexpr int64_t kVectorsBeforeTail = 16;
// A transposition has vectors if it has so many work-items with vectors for each compute unit.
constexpr double kCrossedItemsOfUnit = 256;

/// A load or store of a group, with its stride for each loop (i*, then r*); nullopt where the offset is not affine.
struct AccessStrides {
  std::vector<std::optional<IndexExpr>> strides;
  Access access;
  double bytes = 0;       // Bytes that it moves, over all loops.
  int64_t element_bytes;  // Bytes of an element.
  bool store = false;
};

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

  /// `scalar`: no vectors.
  void choose_vector_width(const Caps& caps, bool scalar) {
    group_.vector_width = 1;
    if (group_.strategy == LoopStrategy::kColumn) {
      choose_columns(caps, scalar);
      return;
    }
    const bool row = group_.strategy == LoopStrategy::kRow;
    const ir::Shape& sizes = row ? group_.reduce_sizes : group_.sizes;
    if (sizes.empty() || scalar) return;
    const Symbol innermost{row ? SymbolKind::kReduce : SymbolKind::kLoop, static_cast<int>(sizes.size()) - 1};
    const ir::Ranges ranges = graph_.ranges();
    if (!caps.is_cpu) {
      // If all elements are small, a vector has 16 bytes. In rows, loads of four elements are wide enough unless some have one
      // byte.
      const bool pointwise = group_.strategy == LoopStrategy::kPointwise;
      const bool bytes = row && std::ranges::any_of(accesses_, [&](const AccessStrides& access) {
                           const auto& stride = access.strides[position(innermost.kind, innermost.index)];
                           return access.element_bytes == 1 && stride && stride->is_const(1);
                         });
      const bool small = (pointwise || bytes) && std::ranges::all_of(accesses_, [&](const AccessStrides& access) {
                           const auto& stride = access.strides[position(innermost.kind, innermost.index)];
                           return access.element_bytes <= 2 || (stride && stride->is_const(0));
                         });
      for (const int width : {8, 4})
        if ((width == 4 || (small && !has_slow_ops())) && group_.vector_width == 1 &&
            (takes_vectors(innermost, width) || (pointwise && takes_vectors_and_tail(innermost, width))))
          group_.vector_width = width;
      if (pointwise && group_.vector_width == 1) choose_crossed_loop(caps);
      if (row || (pointwise && group_.vector_width == 1 && group_.crossed_loop == ir::kNone)) choose_ragged_width(innermost);
      return;
    }
    const size_t at = position(innermost.kind, innermost.index);
    if (std::ranges::none_of(
            accesses_, [&](const AccessStrides& access) { return access.strides[at] && access.strides[at]->is_const(1); }))
      return;
    int width = caps.vector_floats;
    const int64_t max_size = ranges.of(sizes.back()).high;
    while (width > 1 && width > max_size) width /= 2;
    group_.vector_width = width;
  }

  /// Chooses vectors of up to 16 bytes for rows that begin at any element. A GPU loads single elements of 16 bits at less than
  /// half of its bandwidth, and needs more instructions for those of 32 bits. Rows of all tensors must be aligned alike.
  void choose_ragged_width(Symbol loop) {
    const IndexExpr& size = loop.kind == SymbolKind::kLoop ? group_.sizes[loop.index] : group_.reduce_sizes[loop.index];
    const bool scans = std::ranges::any_of(nodes_, [&](NodeId id) { return graph_.nodes[id].kind == ir::NodeKind::kScan; });
    if (scans || (loop.kind == SymbolKind::kReduce && loop.index > 0)) return;
    const ir::Ranges ranges = loops().ranges(graph_);
    int64_t smallest = 8, largest = 1;
    std::vector<IndexExpr> starts;
    for (const AccessStrides& access : accesses_) {
      if (const auto& stride = access.strides[position(loop.kind, loop.index)]; stride && stride->is_const(0)) continue;
      const auto affine = affine_in(linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges), loop);
      if (!affine || !affine->coefficient.is_const(1) || gathers(access.access.coords)) return;
      starts.push_back(affine->rest);
      smallest = std::min(smallest, access.element_bytes);
      largest = std::max(largest, access.element_bytes);
    }
    const int width = largest <= 2 && !has_slow_ops() ? 8 : 4;
    if (smallest > 4 || ranges.of(size).high < kVectorsBeforeTail * width) return;
    if (std::ranges::all_of(starts, [&](const IndexExpr& start) { return ranges.known_divides(width, start - starts[0]); }))
      group_.ragged_width = width;
  }

  /// For a transposition on a GPU: chooses a loop in which loads are contiguous although they are not in the innermost. A
  /// work-item loads a vector along that loop. Its stores go to as many rows, and neighbouring work-items continue them.
  void choose_crossed_loop(const Caps& caps) {
    const int last = static_cast<int>(group_.sizes.size()) - 1;
    const bool small = std::ranges::all_of(accesses_, [](const AccessStrides& access) { return access.element_bytes <= 2; });
    for (const int width : {16, 8, 4})
      for (int loop = 0; loop < last && group_.crossed_loop == ir::kNone && (small || width < 16); ++loop)
        if (typical_product(graph_, group_.sizes) >= kCrossedItemsOfUnit * caps.units * width && crosses(loop, width)) {
          group_.crossed_loop = loop;
          group_.vector_width = width;
        }
  }

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

  /// For kColumn: chooses the columns of a work-group, and vectors of 16 bytes of neighbouring columns.
  void choose_columns(const Caps& caps, bool scalar) {
    int64_t smallest = 4, largest = 1;
    for (const AccessStrides& access : accesses_) {
      if (access.store) continue;
      smallest = std::min(smallest, access.element_bytes);
      largest = std::max(largest, access.element_bytes);
    }
    group_.columns =
        columns_per_group(typical_product(graph_, group_.sizes), typical_product(graph_, group_.reduce_sizes), smallest, caps);
    const int width = largest <= 2 ? 8 : 4;
    const Symbol innermost{SymbolKind::kLoop, static_cast<int>(group_.sizes.size()) - 1};
    if (!scalar && width <= group_.columns && sums_of_floats() && takes_vectors(innermost, width)) group_.vector_width = width;
  }

  /// True if an op takes as long as random numbers do. Vectors of eight of them hold too many registers.
  bool has_slow_ops() const {
    return std::ranges::any_of(nodes_, [&](NodeId id) {
      return std::ranges::any_of(graph_.nodes[id].body.ops,
                                 [](const ir::Op& op) { return ir::facts(op.code).cost == ir::Cost::k_slow; });
    });
  }

  /// True if every reduction of the group has a single accumulator of type f32.
  bool sums_of_floats() const {
    for (const NodeId id : nodes_) {
      const Node& node = graph_.nodes[id];
      if (!ir::is_reduction(node)) continue;
      if (node.kind != ir::NodeKind::kReduce || ir::facts(node.reduction).accumulators != 1 ||
          ir::accumulator_dtype(node.reduction, 0, node.body.ops[node.reduced[0]].dtype) != ir::DType::kF32)
        return false;
    }
    return true;
  }

  /// True if the loop has whole vectors, which are contiguous or broadcast in each access. An offset that is not affine in the
  /// loop may be affine in a vector, as i % 768.
  bool takes_vectors(Symbol loop, int width) const {
    const ir::Shape& sizes = loop.kind == SymbolKind::kLoop ? group_.sizes : group_.reduce_sizes;
    if (sizes.empty() || !graph_.ranges().known_divides(width, sizes[loop.index])) return false;
    const IndexExpr vector = IndexExpr::loop(kVectorLoop), lane = IndexExpr::loop(kVectorLoop + 1);
    ir::Ranges ranges = loops().ranges(graph_);
    ranges.set_extent(lane.symbol(), width);
    const size_t at = position(loop.kind, loop.index);
    bool contiguous = false;
    for (const AccessStrides& access : accesses_) {
      std::optional<IndexExpr> stride = access.strides[at];
      if (stride && stride->is_const(2) && reads_half(access, loop, width)) continue;
      if (!stride) {
        const IndexExpr offset = linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges);
        const auto affine = affine_in(simplify(substitute(offset, {{loop, vector * width + lane}}), ranges), lane.symbol());
        if (affine) stride = affine->coefficient;
      }
      if (!stride || !(stride->is_const(0) || stride->is_const(1))) return false;
      contiguous |= stride->is_const(1);
    }
    return contiguous;
  }

  /// True if a row's load of every second element reads two vectors and takes half of each.
  bool reads_half(const AccessStrides& access, Symbol loop, int width) const {
    if (access.store || group_.strategy != LoopStrategy::kRow || gathers(access.access.coords)) return false;
    const ir::Ranges ranges = loops().ranges(graph_);
    const ir::Buffer& buffer = graph_.buffers[access.access.buffer];
    const auto affine = affine_in(linear_offset(buffer, access.access.coords, ranges), loop);
    return affine && half_of_vectors(buffer, affine->rest, width, ranges);
  }

  /// True if vectors along the loop are whole and aligned in a load that is not contiguous in the innermost loop, and each
  /// other access is contiguous or the same in one of the two loops.
  bool crosses(int loop, int width) const {
    if (!graph_.ranges().known_divides(width, group_.sizes[loop])) return false;
    const ir::Ranges ranges = loops().ranges(graph_);
    const auto is = [](const std::optional<IndexExpr>& stride, int64_t number) { return stride && stride->is_const(number); };
    const int last = static_cast<int>(group_.sizes.size()) - 1;
    bool found = false;
    for (const AccessStrides& access : accesses_) {
      const auto &stride = access.strides[loop], &next = access.strides[last];
      if (!stride || !next || !(stride->is_const())) return false;
      if (is(next, 1) || is(next, 0)) continue;
      const IndexExpr offset = linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges);
      const auto affine = affine_in(offset, Symbol{SymbolKind::kLoop, loop});
      if (access.store || !is(stride, 1) || !affine || !ranges.known_divides(width, affine->rest)) return false;
      found = true;
    }
    return found;
  }

  /// True if the loop is no loop of whole vectors, but each row that is stored begins with aligned vectors, as in a buffer with
  /// padded rows. A GPU loads the vectors of other rows element by element, with as many loads under way.
  bool takes_vectors_and_tail(Symbol loop, int width) const {
    const IndexExpr& size = group_.sizes[loop.index];
    if (!size.is_const() || size.constant() % width == 0 || size.constant() < kVectorsBeforeTail * width) return false;
    const ir::Ranges ranges = loops().ranges(graph_);
    bool contiguous = false;
    for (const AccessStrides& access : accesses_) {
      if (const auto& stride = access.strides[position(loop.kind, loop.index)]; stride && stride->is_const(0)) continue;
      const IndexExpr offset = linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges);
      const auto affine = affine_in(offset, loop);
      if (!affine || !affine->coefficient.is_const(1) || (access.store && !ranges.known_divides(width, affine->rest)))
        return false;
      contiguous = true;
    }
    return contiguous;
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
    loops.choose_vector_width(caps, is_alone(schedule, group.nodes()[0]));
    loops.at_least_one_loop();
  }
}

}  // namespace ocl::schedule
