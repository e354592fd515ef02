// tests/cpp/schedule_simulator.h: runs a graph node by node, and a schedule phase by phase in its planned memory, in
// double precision. It supports Maps and reductions over a few ops, which is enough to test that scheduling does not
// change the results of a graph.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "csrc/ir/facts.h"
#include "csrc/ir/simplify_body.h"
#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/schedule.h"

namespace simulator {

using namespace ocl::ir;
using Memory = std::vector<double>;
using Loops = std::map<Symbol, int64_t>;

constexpr double kPoison = -12345.678;

inline int64_t eval(const IndexExpr& e, const Loops& loops, const std::vector<double>& values,
                    const std::vector<int64_t>& symbols) {
  return evaluate(e, [&](Symbol s) -> int64_t {
    if (s.kind == SymbolKind::kValue) return static_cast<int64_t>(values.at(s.index));
    if (s.kind == SymbolKind::kSize) return symbols.at(s.index);
    return loops.at(s);
  });
}

/// Applies an op as the compiler folds it. What the compiler does not fold is computed here.
inline double apply_op(const Op& op, const std::vector<double>& x, DType operand) {
  if (op.code == OpCode::k_exp) return std::exp(x[0]);
  if (op.code == OpCode::k_where) return x[0] != 0 ? x[1] : x[2];
  std::vector<Scalar> constants;
  for (const double v : x) constants.push_back({is_floating(operand), v, static_cast<int64_t>(v)});
  const DType wide = is_floating(operand) ? DType::kF64 : operand;
  const auto value = fold(op.code, constants, wide, is_floating(op.dtype) ? DType::kF64 : op.dtype);
  if (!value) throw std::runtime_error(std::string("simulator: op ") + facts(op.code).name);
  return value->is_float ? value->f : static_cast<double>(value->i);
}

/// The accumulators of sum, max and welford.
struct Accumulator {
  std::string name;
  std::vector<double> a;
  explicit Accumulator(const std::string& reduction) : name(reduction) {
    a = name == "max"       ? std::vector<double>{-std::numeric_limits<double>::infinity()}
        : name == "welford" ? std::vector<double>{0, 0, 0}
                            : std::vector<double>{0};
  }
  void step(double x) {
    if (name == "sum") a[0] += x;
    if (name == "max") a[0] = std::max(a[0], x);
    if (name == "welford") merge({x, 0, 1});
  }
  void merge(const std::vector<double>& b) {
    if (name != "welford") return step(b[0]);
    const double n = a[2] + b[2], delta = b[0] - a[0];
    if (n == 0) return;
    a = {a[0] + delta * b[2] / n, a[1] + b[1] + delta * delta * a[2] * b[2] / n, n};
  }
};

class Simulator {
 public:
  Simulator(const Graph& graph, std::vector<int64_t> symbols) : graph_(graph), symbols_(std::move(symbols)) {}
  std::function<double&(BufferId, int64_t)> element;  // Returns the element of a buffer at an element offset.

  int64_t offset(BufferId buffer, const std::vector<IndexExpr>& index, const Loops& loops,
                 const std::vector<double>& values) const {
    int64_t result = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      const int64_t at = eval(index[d], loops, values, symbols_),
                    size = eval(graph_.buffers[buffer].sizes[d], {}, {}, symbols_);
      if (at < 0 || at >= size) throw std::runtime_error("simulator: out of bounds: " + graph_.buffers[buffer].name);
      result += at * eval(strides(buffer)[d], {}, {}, symbols_);
    }
    return result;
  }
  Shape strides(BufferId buffer) const {
    const Buffer& b = graph_.buffers[buffer];
    return b.strides ? *b.strides : contiguous_strides(b.sizes);
  }

  std::vector<double> body(const Node& node, const Loops& loops) const {
    std::vector<double> values;
    for (const Op& op : node.body.ops) {
      std::vector<double> args;
      for (const int arg : op.args) args.push_back(values[arg]);
      double v = 0;
      if (op.code == OpCode::kLoad) {
        if (args.empty() || args[0] != 0) v = element(op.buffer, offset(op.buffer, op.index, loops, values));
      } else if (op.code == OpCode::kConstant) {
        v = op.constant.is_float ? op.constant.f : static_cast<double>(op.constant.i);
      } else if (op.code == OpCode::kIndex) {
        v = static_cast<double>(eval(op.index[0], loops, values, symbols_));
      } else {
        v = op.code == OpCode::kCast ? args[0] : apply_op(op, args, node.body.ops[op.args.back()].dtype);
      }
      values.push_back(v);
    }
    return values;
  }

  void store_map(const Node& node, const Loops& loops) const {
    const std::vector<double> values = body(node, loops);
    for (const Store& store : node.stores) put(store, loops, values, values[store.value]);
  }
  void put(const Store& store, const Loops& loops, const std::vector<double>& values, double value) const {
    if (store.mask != kNone && values[store.mask] == 0) return;
    double& target = element(store.buffer, offset(store.buffer, store.index, loops, values));
    target = store.mode == StoreMode::kMaximum ? std::max(target, value)
             : store.mode == StoreMode::kAdd   ? target + value
                                               : value;
  }
  void step_scan(const Node& node, const Loops& loops, Accumulator& acc) const {
    const std::vector<double> values = body(node, loops);
    if (node.reset != kNone && values[node.reset] != 0) acc = Accumulator(acc.name);
    acc.step(values[node.reduced[0]]);
    for (const Store& store : node.stores) put(store, loops, values, acc.a[store.value]);
  }
  void step(const Node& node, const Loops& loops, Accumulator& acc) const {
    const std::vector<double> values = body(node, loops);
    if (node.stage == ReductionStage::kFinal) {
      std::vector<double> b;
      for (const int v : node.reduced) b.push_back(values[v]);
      acc.merge(b);
    } else {
      acc.step(values[node.reduced[0]]);
    }
  }
  void store_reduce(const Node& node, const Loops& loops, const Accumulator& acc) const {
    for (const Store& store : node.stores)
      element(store.buffer, offset(store.buffer, store.index, loops, {})) = acc.a[store.value];
  }

  void over(const Shape& sizes, SymbolKind kind, Loops& loops, const std::function<void()>& visit, size_t d = 0) const {
    if (d == sizes.size()) return visit();
    const Symbol s{kind, static_cast<int>(d)};
    const int64_t n = eval(sizes[d], {}, {}, symbols_);
    for (int64_t i = 0; i < n; ++i) {
      loops[s] = i;
      over(sizes, kind, loops, visit, d + 1);
    }
    loops.erase(s);
  }

  void run_node(const Node& node) const {
    Loops loops;
    over(node.sizes, SymbolKind::kLoop, loops, [&] {
      if (node.kind == NodeKind::kMap) return store_map(node, loops);
      Accumulator acc(facts(node.reduction).name);
      const bool scan = node.kind == NodeKind::kScan;
      over(node.reduce_sizes, SymbolKind::kReduce, loops, [&] { scan ? step_scan(node, loops, acc) : step(node, loops, acc); });
      if (!scan) store_reduce(node, loops, acc);
    });
  }

  void run_group(const ocl::schedule::Group& group) const {
    for (const auto& member : group.members) run_group(member);
    Loops loops;
    over(group.members.empty() ? group.sizes : Shape{0}, SymbolKind::kLoop, loops, [&] {
      for (const auto& phase : group.phases) {
        if (!phase.inner) {
          for (const NodeId id : phase.nodes) store_map(graph_.nodes[id], loops);
          continue;
        }
        std::map<NodeId, Accumulator> accs;
        for (const NodeId id : phase.nodes)
          if (is_reduction(graph_.nodes[id])) accs.emplace(id, Accumulator(facts(graph_.nodes[id].reduction).name));
        over(group.reduce_sizes, SymbolKind::kReduce, loops, [&] {
          for (const NodeId id : phase.nodes)
            if (graph_.nodes[id].kind == NodeKind::kScan)
              step_scan(graph_.nodes[id], loops, accs.at(id));
            else if (accs.count(id))
              step(graph_.nodes[id], loops, accs.at(id));
            else
              store_map(graph_.nodes[id], loops);
        });
        for (const auto& [id, acc] : accs)
          if (graph_.nodes[id].kind == NodeKind::kReduce) store_reduce(graph_.nodes[id], loops, acc);
      }
    });
  }

 private:
  const Graph& graph_;
  const std::vector<int64_t> symbols_;
};

inline int64_t extent(const Simulator& s, const Graph& graph, BufferId b, const std::vector<int64_t>& symbols) {
  int64_t result = 1;
  const Shape strides = s.strides(b);
  for (size_t d = 0; d < strides.size(); ++d)
    result += (eval(graph.buffers[b].sizes[d], {}, {}, symbols) - 1) * eval(strides[d], {}, {}, symbols);
  return result;
}

/// The values that a graph returns, row-major per output, followed by the values of its inputs after the call.
using Results = std::vector<Memory>;

inline Results results(const Simulator& s, const Graph& graph, const std::vector<int64_t>& symbols) {
  Results all;
  const auto read = [&](BufferId buffer) {
    Memory values;
    Loops loops;
    std::vector<IndexExpr> index;
    for (size_t d = 0; d < graph.buffers[buffer].sizes.size(); ++d) index.push_back(IndexExpr::loop(static_cast<int>(d)));
    s.over(graph.buffers[buffer].sizes, SymbolKind::kLoop, loops,
           [&] { values.push_back(s.element(buffer, s.offset(buffer, index, loops, {}))); });
    all.push_back(std::move(values));
  };
  const auto read_window = [&](const Output& output) {
    Memory values;
    Loops loops;
    IndexExpr at = output.offset;
    for (size_t d = 0; d < output.sizes.size(); ++d) at = at + IndexExpr::loop(static_cast<int>(d)) * output.strides[d];
    s.over(output.sizes, SymbolKind::kLoop, loops,
           [&] { values.push_back(s.element(output.buffer, eval(at, loops, {}, symbols))); });
    all.push_back(std::move(values));
  };
  for (const Output& output : graph.outputs)
    output.strides.size() == output.sizes.size() ? read_window(output) : read(output.buffer);
  for (const BufferId input : graph.inputs)
    if (!graph.buffers[input].donated) read(input);  // A donated input may hold anything after the call.
  return all;
}

inline double input_value(int input, int64_t at) { return std::sin(0.7 * static_cast<double>(at) + 1.3 * input) * 2; }

/// Runs the graph before scheduling; each buffer has separate memory.
inline Results run_graph(const Graph& graph, const std::vector<int64_t>& symbols) {
  Simulator s(graph, symbols);
  std::vector<Memory> memory(graph.buffers.size());
  for (size_t b = 0; b < memory.size(); ++b) {
    memory[b].assign(static_cast<size_t>(extent(s, graph, static_cast<BufferId>(b), symbols)), kPoison);
    if (graph.buffers[b].input != kNone)
      for (size_t i = 0; i < memory[b].size(); ++i) memory[b][i] = input_value(graph.buffers[b].input, static_cast<int64_t>(i));
  }
  s.element = [&](BufferId b, int64_t at) -> double& { return memory[b].at(static_cast<size_t>(at)); };
  for (const Node& node : graph.nodes) s.run_node(node);
  return results(s, graph, symbols);
}

/// Runs the schedule in the memory that it planned. Registers lose their values after each group.
inline Results run_schedule(const ocl::schedule::Schedule& schedule, const std::vector<int64_t>& symbols) {
  using Kind = ocl::schedule::Placement::Kind;
  const Graph& graph = schedule.graph;
  Simulator s(graph, symbols);
  std::vector<ocl::schedule::Interval> intervals;
  for (const auto& life : schedule.lifetimes)
    // The sizes are doubled, because the simulator stores an f32 element as a double.
    intervals.push_back({life.first, life.last, 2 * eval(life.size_bytes, {}, {}, symbols)});
  const auto plan = plan_memory(intervals, 64);
  Memory arena(static_cast<size_t>(plan.arena_bytes / 8), kPoison);
  std::vector<Memory> own(graph.buffers.size());
  for (size_t b = 0; b < own.size(); ++b) {
    if (!graph.buffers[b].strides) continue;
    own[b].assign(static_cast<size_t>(extent(s, graph, static_cast<BufferId>(b), symbols)), kPoison);
    if (graph.buffers[b].input != kNone)
      for (size_t i = 0; i < own[b].size(); ++i) own[b][i] = input_value(graph.buffers[b].input, static_cast<int64_t>(i));
  }
  s.element = [&](BufferId b, int64_t at) -> double& {
    while (schedule.placements[b].kind == Kind::kAlias) b = schedule.placements[b].index;
    if (schedule.placements[b].kind == Kind::kArena)
      return arena.at(static_cast<size_t>(plan.offsets[schedule.placements[b].index] / 8 + at));
    return own[b].at(static_cast<size_t>(at));
  };
  for (const auto& group : schedule.groups) {
    s.run_group(group);
    for (size_t b = 0; b < own.size(); ++b)
      if (schedule.placements[b].kind == Kind::kNowhere) std::fill(own[b].begin(), own[b].end(), kPoison);
  }
  return results(s, graph, symbols);
}

}  // namespace simulator
