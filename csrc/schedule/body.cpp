// csrc/schedule/body.cpp: rewrites bodies of loop nests.
#include "csrc/schedule/body.h"

#include <algorithm>

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

bool is_loop_nest(const Node& node) { return node.kind == NodeKind::kMap || is_reduction(node); }

void rewrite_loops(Node& node, const LoopMap& map, const ir::Ranges& ranges) { LoopRewriter(map, ranges).rewrite(node); }

void LoopRewriter::rewrite(Node& node) {
  for (Op& op : node.body.ops) rewrite(op.index);
  for (ir::Store& store : node.stores) rewrite(store.index);
}

void LoopRewriter::rewrite(Coords& coords) {
  // Comparing with more entries would take as long as computing the coordinates again.
  constexpr size_t kMostKnown = 16;
  if (coords.empty()) return;
  for (const auto& [before, after] : known_)
    if (before == coords) {
      coords = after;
      return;
    }
  Coords after = substitute(coords, map_, ranges_);
  if (known_.size() < kMostKnown) known_.emplace_back(coords, after);
  coords = std::move(after);
}

void drop_extent_1_loops(Node& node, const ir::Graph& graph) {
  LoopMap map;
  const auto drop = [&](ir::Shape& sizes, SymbolKind kind, bool keep_one) {
    ir::Shape kept;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Symbol s{kind, static_cast<int>(i)};
      const bool last_chance = keep_one && kept.empty() && i + 1 == sizes.size();
      if (sizes[i].is_const(1) && !last_chance) {
        map.emplace(s, 0);
      } else {
        map.emplace(s, IndexExpr::symbol(kind, static_cast<int>(kept.size())));
        kept.push_back(sizes[i]);
      }
    }
    sizes = kept;
  };
  drop(node.sizes, SymbolKind::kLoop, false);
  if (is_reduction(node)) drop(node.reduce_sizes, SymbolKind::kReduce, true);
  rewrite_loops(node, map, graph.ranges(&node));
}

namespace {

bool uses_value(const IndexExpr& e) { return e.uses(SymbolKind::kValue); }

IndexExpr renumbered(const IndexExpr& e, const std::vector<int>& position) {
  if (!uses_value(e)) return e;
  std::map<Symbol, IndexExpr> map;
  for (size_t i = 0; i < position.size(); ++i) {
    const Symbol s{SymbolKind::kValue, static_cast<int>(i)};
    if (position[i] >= 0 && e.uses(s)) map.emplace(s, IndexExpr::value(position[i]));
  }
  return ir::substitute(e, map);
}

/// Visits the values that leave the body: stored values, reduced values, masks and resets.
template <typename Visit>
void visit_roots(Node& node, Visit visit) {
  for (ir::Store& store : node.stores) {
    if (node.kind == NodeKind::kMap) visit(store.value);
    if (store.mask != ir::kNone) visit(store.mask);
  }
  for (int& value : node.reduced) visit(value);
  if (node.reset != ir::kNone) visit(node.reset);
}

}  // namespace

void renumber(Op& op, const std::vector<int>& position) {
  for (int& arg : op.args) arg = position[arg];
  for (IndexExpr& e : op.index) e = renumbered(e, position);
}

void tidy(Node& node) {
  std::vector<Op>& ops = node.body.ops;
  const size_t count = ops.size();
  // Replace equal operations by the first of them.
  std::vector<int> position(count);
  std::vector<Op> kept;
  for (size_t i = 0; i < count; ++i) {
    Op op = ops[i];
    renumber(op, position);
    int place = ir::kNone;
    for (size_t j = kept.size(); j-- > 0 && place == ir::kNone;) {
      const Op& other = kept[j];
      if (other.code == op.code && other.dtype == op.dtype && other.args == op.args && other.buffer == op.buffer &&
          other.index == op.index &&
          (op.code != OpCode::kConstant ||
           (other.constant.is_float == op.constant.is_float && other.constant.i == op.constant.i &&
            std::equal(reinterpret_cast<const char*>(&other.constant.f), reinterpret_cast<const char*>(&other.constant.f + 1),
                       reinterpret_cast<const char*>(&op.constant.f)))))
        place = static_cast<int>(j);
    }
    if (place == ir::kNone) {
      place = static_cast<int>(kept.size());
      kept.push_back(std::move(op));
    }
    position[i] = place;
  }
  visit_roots(node, [&](int& value) { value = position[value]; });
  for (ir::Store& store : node.stores)
    for (IndexExpr& e : store.index) e = renumbered(e, position);

  // Remove unused operations.
  std::vector<bool> used(kept.size(), false);
  const auto use_values = [&](const IndexExpr& e) {
    if (!uses_value(e)) return;
    for (size_t i = 0; i < kept.size(); ++i)
      if (e.uses(Symbol{SymbolKind::kValue, static_cast<int>(i)})) used[i] = true;
  };
  visit_roots(node, [&](int& value) { used[value] = true; });
  for (const ir::Store& store : node.stores) std::for_each(store.index.begin(), store.index.end(), use_values);
  for (size_t i = kept.size(); i-- > 0;) {
    if (!used[i]) continue;
    for (const int arg : kept[i].args) used[arg] = true;
    std::for_each(kept[i].index.begin(), kept[i].index.end(), use_values);
  }
  position.assign(kept.size(), ir::kNone);
  ops.clear();
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!used[i]) continue;
    renumber(kept[i], position);
    position[i] = static_cast<int>(ops.size());
    ops.push_back(std::move(kept[i]));
  }
  visit_roots(node, [&](int& value) { value = position[value]; });
  for (ir::Store& store : node.stores)
    for (IndexExpr& e : store.index) e = renumbered(e, position);
}

bool can_inline(const Node& producer, const ir::Store& store) {
  if (producer.kind != NodeKind::kMap || is_partial(store)) return false;
  std::vector<bool> seen(producer.sizes.size(), false);
  for (const IndexExpr& e : store.index) {
    if (e.is_const(0)) continue;
    if (e.op() != IndexOp::kSymbol || e.symbol().kind != SymbolKind::kLoop || seen[e.symbol().index]) return false;
    seen[e.symbol().index] = true;
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

namespace {

int converted(ir::Body& body, int value, ir::DType dtype) {
  return body.ops[value].dtype == dtype ? value : push(body, OpCode::kCast, dtype, {value});
}

}  // namespace

std::vector<int> append_body(ir::Body& body, const Node& from, const LoopMap& loops, const ir::Ranges& ranges, int mask) {
  std::vector<int> position(from.body.ops.size(), ir::kNone);
  for (size_t i = 0; i < from.body.ops.size(); ++i) {
    Op op = from.body.ops[i];
    renumber(op, position);
    op.index = substitute(op.index, loops, ranges);
    if (op.code == OpCode::kLoad && mask != ir::kNone)
      op.args = {op.args.empty() ? mask : push(body, OpCode::k_logical_and, ir::DType::kBool, {mask, op.args[0]})};
    position[i] = push(body, std::move(op));
  }
  return position;
}

void inline_producer(Node& consumer, const Node& producer, const ir::Store& store, const ir::Graph& graph) {
  const std::vector<Op> old = std::move(consumer.body.ops);
  ir::Body body;
  const ir::Ranges ranges = loops_of(consumer).ranges(graph);
  const ir::DType stored = graph.buffers[store.buffer].dtype;
  std::vector<int> position(old.size(), ir::kNone);
  for (size_t i = 0; i < old.size(); ++i) {
    Op op = old[i];
    renumber(op, position);
    if (op.code != OpCode::kLoad || op.buffer != store.buffer) {
      position[i] = push(body, std::move(op));
      continue;
    }
    LoopMap loops;
    for (size_t d = 0; d < op.index.size(); ++d)
      if (store.index[d].op() == IndexOp::kSymbol) loops.emplace(store.index[d].symbol(), op.index[d]);
    const int mask = op.args.empty() ? ir::kNone : op.args[0];
    int value = append_body(body, producer, loops, ranges, mask)[store.value];
    value = converted(body, value, stored);
    if (mask != ir::kNone) {
      const ir::DType type = compute_type(stored);
      const int inside = converted(body, value, type), zero = push(body, OpCode::kConstant, type);
      body.ops[zero].constant.is_float = is_floating(type);
      value = converted(body, push(body, OpCode::k_where, type, {mask, inside, zero}), stored);
    }
    position[i] = converted(body, value, op.dtype);
  }
  consumer.body = std::move(body);
  visit_roots(consumer, [&](int& value) { value = position[value]; });
  for (ir::Store& s : consumer.stores)
    for (IndexExpr& e : s.index) e = renumbered(e, position);
  tidy(consumer);
}

void keep_unrounded(Node& node) {
  std::vector<Op> ops;
  std::vector<int> position(node.body.ops.size(), ir::kNone);
  for (size_t i = 0; i < node.body.ops.size(); ++i) {
    Op op = node.body.ops[i];
    renumber(op, position);
    if (op.code == OpCode::kCast) {
      op.dtype = compute_type(op.dtype);
      position[i] = op.args[0];
      if (ops[op.args[0]].dtype == op.dtype) continue;
    }
    position[i] = static_cast<int>(ops.size());
    ops.push_back(std::move(op));
  }
  node.body.ops = std::move(ops);
  for (int& value : node.reduced) value = position[value];
}

double op_cost(const Node& node) {
  double cost = 0;
  for (const Op& op : node.body.ops) {
    if (op.code == OpCode::kLoad || op.code == OpCode::kConstant) continue;
    const ir::Cost row = ir::facts(op.code).cost;
    // The unit is a quarter of a byte of memory traffic. Measured on AVX-512, per 16 floats: an operation takes 0.1-0.3
    // ns, exp 1.1 ns and erf 3-12 ns; loading 64 bytes from memory takes 1.3 ns.
    cost += row == ir::Cost::k_slow ? 40 : row == ir::Cost::k_special ? 12 : 1;
  }
  return cost;
}

double bytes_read(const ir::Graph& graph, const Node& node) {
  std::map<ir::BufferId, double> bytes;
  const Loops loops = loops_of(node);
  const ir::Shape extents = loops.extents();
  const std::vector<Symbol> symbols = loops.symbols();
  for (const Op& op : node.body.ops) {
    if (op.code != OpCode::kLoad) continue;
    double touched = 1;
    const bool gather = gathers(op.index);
    for (size_t i = 0; i < symbols.size(); ++i)
      if (gather || std::any_of(op.index.begin(), op.index.end(), [&](const IndexExpr& e) { return e.uses(symbols[i]); }))
        touched *= typical(graph, extents[i]);
    double& read = bytes[op.buffer];
    read = std::min(typical_bytes(graph, op.buffer), read + touched * size_bytes(graph.buffers[op.buffer].dtype));
  }
  double all = 0;
  for (const auto& [buffer, read] : bytes) all += read;
  return all;
}

bool gathers(const std::vector<IndexExpr>& coords) {
  return std::ranges::any_of(coords, [](const IndexExpr& e) { return e.uses(SymbolKind::kValue); });
}

std::vector<Access> accesses(const Node& node) {
  std::vector<Access> result;
  for (const Op& op : node.body.ops)
    if (op.code == OpCode::kLoad) result.push_back({op.buffer, op.index, false});
  for (const ir::Store& store : node.stores) result.push_back({store.buffer, store.index, true, is_partial(store)});
  return result;
}

}  // namespace ocl::schedule
