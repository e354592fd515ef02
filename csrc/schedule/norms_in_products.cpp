// csrc/schedule/norms_in_products.cpp: see norms_in_products.h.
#include "csrc/schedule/norms_in_products.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {
namespace {

constexpr size_t kMostOps = 200;  // Most ops of a product with its norm.

/// A row that a Map normalises by the result of a sum over it.
struct Norm {
  NodeId sum = ir::kNone, map = ir::kNone;
  BufferId total = ir::kNone, row = ir::kNone;  // The results of the two.
  LoopMap loops;                                // The loops of the sum as expressions over those of the Map.
};

/// A product that reads the row, in three nodes: a sum of products with the row as it was before, the sum over that row, and a
/// Map that scales the first by a factor from the second.
struct Product {
  Node sum, total, scaled;
};

class Norms {
 public:
  Norms(Schedule& schedule, const Caps& caps)
      : schedule_(schedule),
        caps_(caps),
        graph_(schedule.graph),
        visible_(visible_buffers(graph_)),
        uses_(schedule),
        replaced_(graph_.nodes.size()) {}

  void run() {
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId map = 0; map < count; ++map)
      if (const std::optional<Norm> norm = norm_of(map)) move_into_readers(*norm);
    std::vector<Node> nodes;
    std::vector<NodeId> from;
    for (NodeId i = 0; i < count; ++i) {
      if (replaced_[i].empty()) {
        nodes.push_back(std::move(graph_.nodes[i]));
        from.push_back(i);
        continue;
      }
      schedule_.log.push_back(graph_.nodes[i].origin.op + ": normalises the row that it reads");
      for (Node& node : replaced_[i]) nodes.push_back(std::move(node));
      from.resize(nodes.size(), ir::kNone);
    }
    const bool changed = std::ranges::find(from, ir::kNone) != from.end();
    replace_nodes(schedule_, std::move(nodes), from);
    if (changed) drop_dead_nodes(schedule_);
  }

 private:
  bool is_sum(const Node& node) const {
    return node.kind == NodeKind::kReduce && node.stage == ir::ReductionStage::kWhole &&
           node.reduction == ir::reduction_code("sum") && node.stores.size() == 1 && !is_partial(node.stores[0]) &&
           node.reduce_sizes.size() == 1 && node.reduce_sizes[0].is_const() &&
           node.body.ops[node.reduced[0]].dtype == DType::kF32;
  }

  /// True if nothing but node `id` writes the buffer, and the caller does not see it.
  bool is_own(BufferId buffer, NodeId id) const {
    return !visible_[buffer] && uses_.writers[buffer] == std::vector<NodeId>{id};
  }

  /// Returns how the Map reads what a sum over the same row computed.
  std::optional<Norm> norm_of(NodeId id) const {
    const Node& map = graph_.nodes[id];
    if (map.kind != NodeKind::kMap || map.stores.size() != 1 || !is_own(map.stores[0].buffer, id)) return std::nullopt;
    if (!can_inline(map, map.stores[0]) || is_alone(schedule_, id)) return std::nullopt;
    for (const Op& op : map.body.ops) {
      if (op.code != OpCode::kLoad || uses_.writers[op.buffer].size() != 1 || !op.args.empty()) continue;
      const NodeId sum = uses_.writers[op.buffer][0];
      if (sum >= id || !is_sum(graph_.nodes[sum]) || !is_own(op.buffer, sum)) continue;
      if (const std::optional<LoopMap> loops = loops_of_sum(graph_.nodes[sum], map, op))
        return Norm{sum, id, op.buffer, map.stores[0].buffer, *loops};
    }
    return std::nullopt;
  }

  /// Returns the loops of the sum as expressions over those of the Map, so that both read the same elements. `total`: the Map's
  /// load of the sum's result, which must belong to the same row.
  std::optional<LoopMap> loops_of_sum(const Node& sum, const Node& map, const Op& total) const {
    const ir::Ranges ranges = graph_.ranges(&map);
    for (const Op& a : sum.body.ops)
      for (const Op& b : map.body.ops) {
        if (a.code != OpCode::kLoad || b.code != OpCode::kLoad || a.buffer != b.buffer || gathers(a.index)) continue;
        const auto loops = solve(loops_of(sum), a.index, b.index, ranges);
        if (loops && loops->size() == loops_of(sum).symbols().size() &&
            substitute(sum.stores[0].index, *loops, ranges) == total.index)
          return loops;
      }
    return std::nullopt;
  }

  /// Makes the norm part of all products that read the row, if all of its readers are products that can take it in.
  void move_into_readers(const Norm& norm) {
    std::vector<std::pair<NodeId, Product>> products;
    for (const NodeId reader : uses_.readers[norm.row]) {
      std::optional<Product> product = replaced_[reader].empty() ? product_of(norm, reader) : std::nullopt;
      if (!product) return;
      products.emplace_back(reader, std::move(*product));
    }
    std::vector<Node> totals;  // Products over the same loops share the sum.
    std::vector<BufferId> results;
    for (auto& [reader, product] : products) {
      const auto same = std::ranges::find_if(totals, [&](const Node& other) { return equal_sums(other, product.total); });
      const size_t at = static_cast<size_t>(same - totals.begin());
      const bool is_new = same == totals.end();
      if (is_new) {
        totals.push_back(product.total);
        results.push_back(add_buffer(product.total.sizes));
        product.total.stores = {{results[at], ir::loops(product.total.sizes.size()), 0}};
        replaced_[reader].push_back(std::move(product.total));
      }
      const BufferId unscaled = add_buffer(product.sum.sizes);
      product.sum.stores = {{unscaled, ir::loops(product.sum.sizes.size()), 0}};
      for (Op& op : product.scaled.body.ops)
        if (op.code == OpCode::kLoad) {
          if (op.buffer == norm.total) op = load(results[at], product.sum.sizes);
          if (op.buffer == ir::kNone) op = load(unscaled, product.sum.sizes);
        }
      tidy(product.scaled);
      replaced_[reader].push_back(std::move(product.sum));
      replaced_[reader].push_back(std::move(product.scaled));
    }
  }

  static bool equal_sums(const Node& a, const Node& b) {
    return a.sizes == b.sizes && a.reduce_sizes == b.reduce_sizes && a.reduced == b.reduced &&
           std::ranges::equal(a.body.ops, b.body.ops, [](const Op& x, const Op& y) {
             return x.code == y.code && x.buffer == y.buffer && x.index == y.index && x.args == y.args;
           });
  }

  static Op load(BufferId buffer, const ir::Shape& sizes) {
    return {OpCode::kLoad, DType::kF32, {}, {}, buffer, ir::loops(sizes.size())};
  }

  BufferId add_buffer(const ir::Shape& sizes) {
    ir::Buffer buffer;
    buffer.dtype = DType::kF32;
    buffer.sizes = sizes;
    buffer.strides = contiguous_strides(sizes);
    return graph_.add_buffer(std::move(buffer));
  }

  /// Returns the nodes that stand for a product with the norm. The stores of the sums are missing, and the Map loads their
  /// result from no buffer (the product) and norm.total.
  std::optional<Product> product_of(const Norm& norm, NodeId id) const {
    const Node& node = graph_.nodes[id];
    if (!is_sum(node) || is_alone(schedule_, id) || reduction_strategy(graph_, node, caps_) != LoopStrategy::kRow)
      return std::nullopt;
    if (!stay(norm, id)) return std::nullopt;
    std::optional<Node> total = total_of(norm, node);
    if (!total) return std::nullopt;
    Node whole = node;
    inline_producer(whole, graph_.nodes[norm.map], graph_.nodes[norm.map].stores[0], graph_);
    keep_unrounded(whole);
    if (whole.body.ops.size() > kMostOps) return std::nullopt;
    const std::vector<bool> of_total = depends_on(whole, norm.total);
    const int factor = factor_of(whole, of_total);
    if (factor == ir::kNone) return std::nullopt;
    Node sum = whole;
    const int value = without(sum, whole.reduced[0], factor, of_total);
    if (value == ir::kNone) return std::nullopt;
    sum.reduced = {value};
    tidy(sum);
    Node scaled;
    scaled.origin = node.origin;
    scaled.sizes = node.sizes;
    scaled.body = whole.body;
    const int unscaled = push(scaled.body, load(ir::kNone, node.sizes));
    int result = push(scaled.body, OpCode::k_mul, DType::kF32, {unscaled, factor});
    const ir::Store& store = node.stores[0];
    if (const DType stored = graph_.buffers[store.buffer].dtype; stored != DType::kF32)
      result = push(scaled.body, OpCode::kCast, stored, {result});
    scaled.stores = {{store.buffer, store.index, result}};
    tidy(scaled);
    const bool by_row = std::ranges::any_of(scaled.body.ops, [](const Op& op) {
      return std::ranges::any_of(op.index, [](const IndexExpr& e) { return e.uses(SymbolKind::kReduce); });
    });
    if (by_row) return std::nullopt;
    sum.inlined.push_back(graph_.nodes[norm.map].origin);
    return Product{std::move(sum), std::move(*total), std::move(scaled)};
  }

  /// True if what the norm reads has the same values where the product runs.
  bool stay(const Norm& norm, NodeId product) const {
    for (const NodeId id : {norm.sum, norm.map})
      for (const BufferId b : ir::reads(graph_.nodes[id]))
        for (const NodeId w : uses_.writers[b])
          if (w > norm.sum && w <= product) return false;
    return true;
  }

  /// Returns the sum over the row, over the loops of the product. nullopt if the product does not read each element once.
  std::optional<Node> total_of(const Norm& norm, const Node& product) const {
    const Node &map = graph_.nodes[norm.map], &sum = graph_.nodes[norm.sum];
    const ir::Ranges ranges = graph_.ranges(&product);
    Node total = product;
    total.origin = sum.origin;
    total.inlined = sum.inlined;
    total.body.ops.clear();
    std::vector<Coords> seen;
    std::vector<bool> counted(static_cast<size_t>(sum.reduce_sizes[0].constant()), false);
    int value = ir::kNone;
    for (const Op& op : product.body.ops) {
      if (op.code != OpCode::kLoad || op.buffer != norm.row || std::ranges::find(seen, op.index) != seen.end()) continue;
      seen.push_back(op.index);
      const auto at = solve(loops_of(map), map.stores[0].index, op.index, ranges);
      if (!op.args.empty() || !at || at->size() != map.sizes.size()) return std::nullopt;
      const LoopMap loops = compose(norm.loops, *at, ranges);
      if (!count_elements(loops.at({SymbolKind::kReduce, 0}), product.reduce_sizes[0].constant(), counted)) return std::nullopt;
      const int one = append_body(total.body, sum, loops, ranges)[sum.reduced[0]];
      value = value == ir::kNone ? one : push(total.body, OpCode::k_add, DType::kF32, {value, one});
    }
    if (std::ranges::find(counted, false) != counted.end()) return std::nullopt;
    total.reduced = {value};
    tidy(total);
    return total;
  }

  /// Marks the elements at which a load of the product reads the row. Returns false if one is marked already.
  static bool count_elements(const IndexExpr& element, int64_t length, std::vector<bool>& counted) {
    const auto affine = affine_in(element, {SymbolKind::kReduce, 0});
    if (!affine || !affine->coefficient.is_const() || !affine->rest.is_const()) return false;
    for (int64_t r = 0; r < length; ++r) {
      const int64_t at = affine->rest.constant() + r * affine->coefficient.constant();
      if (at < 0 || at >= static_cast<int64_t>(counted.size()) || counted[static_cast<size_t>(at)]) return false;
      counted[static_cast<size_t>(at)] = true;
    }
    return true;
  }

  static std::vector<bool> depends_on(const Node& node, BufferId buffer) {
    std::vector<bool> result;
    for (const Op& op : node.body.ops)
      result.push_back((op.code == OpCode::kLoad && op.buffer == buffer) ||
                       std::ranges::any_of(op.args, [&](int arg) { return result[static_cast<size_t>(arg)]; }));
    return result;
  }

  /// Returns the value by which elements of the row are multiplied: the one that is computed from the total alone.
  static int factor_of(const Node& node, const std::vector<bool>& of_total) {
    for (const Op& op : node.body.ops)
      if (op.code == ir::op_code("mul"))
        for (const int side : {0, 1})
          if (of_total[static_cast<size_t>(op.args[side])] && !of_total[static_cast<size_t>(op.args[1 - side])])
            return op.args[side];
    return ir::kNone;
  }

  /// Rewrites value `i` without the factor and returns the value's new number. kNone if it is not a multiple of the factor.
  static int without(Node& node, int i, int factor, const std::vector<bool>& of_total) {
    if (static_cast<size_t>(i) >= of_total.size() || !of_total[static_cast<size_t>(i)]) return ir::kNone;
    Op op = node.body.ops[static_cast<size_t>(i)];
    const auto rewritten = [&](std::initializer_list<int> which) {
      for (const int arg : which) {
        op.args[arg] = without(node, op.args[arg], factor, of_total);
        if (op.args[arg] == ir::kNone) return ir::kNone;
      }
      return push(node.body, op);
    };
    const auto has = [&](int arg) { return of_total[static_cast<size_t>(op.args[arg])]; };
    if (op.code == ir::op_code("add") || op.code == ir::op_code("sub")) return rewritten({0, 1});
    if (op.code == ir::op_code("neg") || op.code == OpCode::kCast) return rewritten({0});
    if (op.code != ir::op_code("mul") && op.code != ir::op_code("fma")) return ir::kNone;
    if (has(0) && has(1)) return ir::kNone;
    const int side = has(0) ? 0 : 1;
    const bool fma = op.code == ir::op_code("fma");
    if (!fma && op.args[side] == factor) return op.args[1 - side];
    return fma ? rewritten({side, 2}) : rewritten({side});
  }

  Schedule& schedule_;
  const Caps& caps_;
  Graph& graph_;
  const std::vector<bool> visible_;
  const Accesses uses_;
  std::vector<std::vector<Node>> replaced_;  // For each node, those that stand for it; none: it stays.
};

}  // namespace

void norms_in_products(Schedule& schedule, const Caps& caps) {
  if (!caps.is_cpu) Norms(schedule, caps).run();
}

}  // namespace ocl::schedule
