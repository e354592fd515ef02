// csrc/schedule/rows_together.cpp: see rows_together.h.
#include "csrc/schedule/rows_together.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {
namespace {

constexpr int64_t kMostParts = 4;       // Most rows of an iteration.
constexpr size_t kMostOps = 400;        // Most ops of a Map.
constexpr int64_t kMostRows = 1 << 20;  // Most rows, which are counted one by one.

Symbol loop_symbol(size_t d) { return {SymbolKind::kLoop, static_cast<int>(d)}; }

/// How a loop is split: into `parts` copies of the body, each for neighbouring iterations.
struct Split {
  size_t loop = 0;
  int64_t size = 1, parts = 1;
};

/// A Map that reads the result of a reduction: elements `rest` + sum of loop * step, for each of `rests`, in ascending order.
struct Reader {
  NodeId id = ir::kNone;
  Node map;
  std::vector<int64_t> steps, rests;
};

class Rows {
 public:
  Rows(Schedule& schedule, const Caps& caps)
      : schedule_(schedule), caps_(caps), graph_(schedule.graph), visible_(visible_buffers(graph_)), uses_(schedule) {}

  void run() {
    std::vector<Node> nodes;
    std::vector<NodeId> from;
    for (NodeId i = 0; i < static_cast<NodeId>(graph_.nodes.size()); ++i) {
      if (rewrite(i, nodes)) {
        from.resize(nodes.size(), ir::kNone);
        schedule_.log.push_back(graph_.nodes[i].origin.op + ": rows that are read together have loops of their own");
      } else {
        nodes.push_back(std::move(graph_.nodes[i]));
        from.push_back(i);
      }
    }
    replace_nodes(schedule_, std::move(nodes), from);
  }

 private:
  /// Appends the reductions that replace reduction `id`, and changes its readers. Returns false if it stays as it is.
  bool rewrite(NodeId id, std::vector<Node>& nodes) {
    const Node& node = graph_.nodes[id];
    if (node.kind != NodeKind::kReduce || node.stage != ir::ReductionStage::kWhole || node.stores.size() != 1) return false;
    if (node.sizes.size() != 1 || !node.sizes[0].is_const() || node.sizes[0].constant() > kMostRows) return false;
    if (reduction_strategy(graph_, node, caps_) != LoopStrategy::kRow) return false;
    result_ = node.stores[0].buffer;
    if (visible_[result_] || uses_.writers[result_].size() != 1 || is_partial(node.stores[0]) || is_alone(schedule_, id))
      return false;
    if (linear_offset(graph_.buffers[result_], node.stores[0].index, graph_.ranges(&node)) != IndexExpr::loop(0)) return false;
    std::vector<Reader> readers = readers_of(id);
    if (readers.empty() || (readers.size() == 1 && readers[0].rests.size() == 1)) return false;
    if (!share_loops(readers) || !read_once(readers, node.sizes[0].constant())) return false;
    ir::Shape loops = readers[0].map.sizes;
    for (size_t r = 1; r < readers.size(); ++r) loops[0] = loops[0] + readers[r].map.sizes[0];
    const std::vector<BufferId> results = add_sums(node, readers[0], loops, nodes);
    IndexExpr start = 0;
    for (Reader& reader : readers) {
      const IndexExpr end = start + reader.map.sizes[0];
      graph_.nodes[reader.id] = reading(reader, results, loops, start, end);
      start = end;
    }
    return true;
  }

  /// Returns the Maps that read the result; none if something else reads it, or a Map does so in no known order.
  std::vector<Reader> readers_of(NodeId id) const {
    std::vector<Reader> readers;
    std::optional<Split> split;
    for (const NodeId r : uses_.readers[result_]) {
      const Node& map = graph_.nodes[r];
      const bool known = std::ranges::all_of(map.sizes, [](const IndexExpr& size) { return size.is_const(); });
      if (r <= id || map.kind != NodeKind::kMap || map.sizes.empty() || !known || is_alone(schedule_, r)) return {};
      readers.push_back({r, map, {}, {}});
      if (!split) split = split_of(map);
    }
    for (Reader& reader : readers) {
      const ir::Shape& sizes = reader.map.sizes;
      if (split && split->loop < sizes.size() && sizes[split->loop].is_const(split->size) && !unroll(reader.map, *split))
        return {};
      if (!find_rows(reader)) return {};
    }
    return readers;
  }

  /// Returns the loop of a Map by whose parts it chooses elements of the result.
  std::optional<Split> split_of(const Node& map) const {
    std::optional<Split> split;
    const std::function<void(const IndexExpr&)> visit = [&](const IndexExpr& e) {
      if (split || e.is_const() || e.op() == IndexOp::kSymbol) return;
      if ((e.op() == IndexOp::kFloorDiv || e.op() == IndexOp::kMod) && e.args()[0].op() == IndexOp::kSymbol &&
          e.args()[1].is_const() && e.args()[0].symbol().kind == SymbolKind::kLoop) {
        const auto d = static_cast<size_t>(e.args()[0].symbol().index);
        const int64_t size = map.sizes[d].constant(), inner = e.args()[1].constant();
        if (inner > 0 && inner < size && size % inner == 0 && size / inner <= kMostParts) split = {d, size, size / inner};
      }
      for (const IndexExpr& arg : e.args()) visit(arg);
    };
    for (const Op& op : map.body.ops)
      if (op.code == OpCode::kLoad && op.buffer == result_)
        visit(linear_offset(graph_.buffers[result_], op.index, graph_.ranges(&map)));
    return split;
  }

  /// Gives a Map a copy of its body for each part of the split loop. Returns false if the body would be too long.
  bool unroll(Node& map, const Split& split) const {
    if (map.body.ops.size() * static_cast<size_t>(split.parts) > kMostOps) return false;
    const Node whole = map;
    map.sizes[split.loop] = split.size / split.parts;
    map.body.ops.clear();
    map.stores.clear();
    const ir::Ranges ranges = graph_.ranges(&map);
    for (int64_t p = 0; p < split.parts; ++p) {
      LoopMap loops = identity(loops_of(map));
      loops[loop_symbol(split.loop)] = IndexExpr::loop(static_cast<int>(split.loop)) + p * (split.size / split.parts);
      append(map, whole, loops, ranges, ir::kNone);
    }
    tidy(map);
    return true;
  }

  /// Appends the body and the stores of `whole` with its loops replaced. `inside`: the condition for its stores, and for the
  /// loads that depend on the first loop.
  static void append(Node& map, const Node& whole, const LoopMap& loops, const ir::Ranges& ranges, int inside) {
    const auto both = [&](int condition) {
      if (inside == ir::kNone || condition == ir::kNone) return inside == ir::kNone ? condition : inside;
      return push(map.body, OpCode::k_logical_and, ir::DType::kBool, {inside, condition});
    };
    std::vector<int> position(whole.body.ops.size(), ir::kNone);
    for (size_t i = 0; i < whole.body.ops.size(); ++i) {
      Op op = whole.body.ops[i];
      renumber(op, position);
      const bool moves = std::ranges::any_of(op.index, [](const IndexExpr& e) { return e.uses(loop_symbol(0)); });
      if (op.code == OpCode::kLoad && moves && inside != ir::kNone) op.args = {both(op.args.empty() ? ir::kNone : op.args[0])};
      op.index = substitute(op.index, loops, ranges);
      position[i] = push(map.body, std::move(op));
    }
    for (ir::Store store : whole.stores) {
      Op index{OpCode::kIndex, ir::DType::kI64, {}, {}, ir::kNone, store.index};
      renumber(index, position);
      store.index = substitute(index.index, loops, ranges);
      store.value = position[store.value];
      store.mask = both(store.mask == ir::kNone ? ir::kNone : position[store.mask]);
      map.stores.push_back(std::move(store));
    }
  }

  /// Finds which elements of the result a Map reads. Returns false if a load depends on a mask or a value, or if the elements
  /// of one load are in another order than those of the others.
  bool find_rows(Reader& reader) const {
    const ir::Ranges ranges = graph_.ranges(&reader.map);
    for (const Op& op : reader.map.body.ops) {
      if (op.code != OpCode::kLoad || op.buffer != result_) continue;
      if (!op.args.empty() || gathers(op.index)) return false;
      const std::optional<std::pair<std::vector<int64_t>, int64_t>> row = row_of(op, reader.map, ranges);
      if (!row || (!reader.steps.empty() && reader.steps != row->first)) return false;
      reader.steps = row->first;
      reader.rests.push_back(row->second);
    }
    std::ranges::sort(reader.rests);
    reader.rests.erase(std::unique(reader.rests.begin(), reader.rests.end()), reader.rests.end());
    return static_cast<int64_t>(reader.rests.size()) <= kMostParts;
  }

  /// Returns the steps of the loops and the constant part of a load's offset in the result.
  std::optional<std::pair<std::vector<int64_t>, int64_t>> row_of(const Op& op, const Node& map,
                                                                 const ir::Ranges& ranges) const {
    IndexExpr rest = linear_offset(graph_.buffers[result_], op.index, ranges);
    std::vector<int64_t> steps;
    for (size_t d = 0; d < map.sizes.size(); ++d) {
      const auto affine = affine_in(rest, loop_symbol(d));
      if (!affine || !affine->coefficient.is_const()) return std::nullopt;
      steps.push_back(affine->coefficient.constant());
      rest = affine->rest;
    }
    if (!rest.is_const()) return std::nullopt;
    return std::pair(std::move(steps), rest.constant());
  }

  /// Sorts the readers by the elements that they read. Returns false if these do not follow each other along the first loop.
  static bool share_loops(std::vector<Reader>& readers) {
    std::ranges::sort(readers, {}, [](const Reader& reader) { return reader.rests[0]; });
    for (size_t r = 1; r < readers.size(); ++r) {
      const Reader &first = readers[0], &before = readers[r - 1], &reader = readers[r];
      const ir::Shape &a = first.map.sizes, &b = reader.map.sizes;
      if (reader.steps != first.steps || reader.rests.size() != first.rests.size()) return false;
      if (!std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end())) return false;
      const int64_t distance = reader.rests[0] - first.rests[0];
      for (size_t p = 0; p < first.rests.size(); ++p)
        if (reader.rests[p] - first.rests[p] != distance) return false;
      if (reader.rests[0] != before.rests[0] + before.map.sizes[0].constant() * before.steps[0]) return false;
    }
    return true;
  }

  /// True if no element is read twice.
  static bool read_once(const std::vector<Reader>& readers, int64_t rows) {
    std::vector<bool> seen(static_cast<size_t>(rows), false);
    for (const Reader& reader : readers) {
      int64_t count = 1;
      for (const IndexExpr& size : reader.map.sizes) {
        if (size.constant() < 1 || size.constant() > rows) return false;
        if ((count *= size.constant()) > rows) return false;
      }
      for (const int64_t rest : reader.rests)
        for (int64_t i = 0; i < count; ++i) {
          int64_t row = rest, left = i;
          for (size_t d = reader.steps.size(); d-- > 0; left /= reader.map.sizes[d].constant())
            row += left % reader.map.sizes[d].constant() * reader.steps[d];
          if (row < 0 || row >= rows || seen[static_cast<size_t>(row)]) return false;
          seen[static_cast<size_t>(row)] = true;
        }
    }
    return true;
  }

  /// Appends a reduction over `loops` for each part of `first`. Returns their results.
  std::vector<BufferId> add_sums(const Node& node, const Reader& first, const ir::Shape& loops, std::vector<Node>& nodes) {
    std::vector<BufferId> results;
    for (const int64_t rest : first.rests) {
      IndexExpr row = rest;
      for (size_t d = 0; d < loops.size(); ++d) row = row + IndexExpr::loop(static_cast<int>(d)) * first.steps[d];
      ir::Buffer buffer;
      buffer.dtype = graph_.buffers[result_].dtype;
      buffer.sizes = loops;
      buffer.strides = contiguous_strides(loops);
      results.push_back(graph_.add_buffer(buffer));
      Node sum = node;
      sum.sizes = loops;
      LoopMap map = identity(loops_of(node));
      map[loop_symbol(0)] = row;
      rewrite_loops(sum, map, graph_.ranges(&sum));
      sum.stores[0].buffer = results.back();
      sum.stores[0].index = ir::loops(loops.size());
      nodes.push_back(std::move(sum));
    }
    return results;
  }

  /// Returns the reader as a Map over `loops`, of which it has iterations `start` to `end` of the first, that reads `results`.
  Node reading(const Reader& reader, const std::vector<BufferId>& results, const ir::Shape& loops, const IndexExpr& start,
               const IndexExpr& end) const {
    Node whole = reader.map;
    const ir::Ranges old = graph_.ranges(&reader.map);
    for (Op& op : whole.body.ops) {
      if (op.code != OpCode::kLoad || op.buffer != result_) continue;
      const auto part = std::ranges::find(reader.rests, row_of(op, reader.map, old)->second) - reader.rests.begin();
      op.buffer = results[static_cast<size_t>(part)];
      op.index = ir::loops(loops.size());
      op.index[0] = op.index[0] + start;
    }
    Node map = whole;
    map.sizes = loops;
    map.body.ops.clear();
    map.stores.clear();
    LoopMap shifted = identity(loops_of(map));
    shifted[loop_symbol(0)] = IndexExpr::loop(0) - start;
    append(map, whole, shifted, graph_.ranges(&map), whole.sizes == loops ? ir::kNone : add_inside(map, start, end));
    tidy(map);
    return map;
  }

  /// Appends the condition that the first loop is at `start` or later, and before `end`.
  static int add_inside(Node& map, const IndexExpr& start, const IndexExpr& end) {
    ir::Body& body = map.body;
    const int at = push_index(body, IndexExpr::loop(0)), first = push_index(body, start), last = push_index(body, end);
    const int after = push(body, OpCode::k_ge, ir::DType::kBool, {at, first});
    const int before = push(body, OpCode::k_lt, ir::DType::kBool, {at, last});
    return push(body, OpCode::k_logical_and, ir::DType::kBool, {after, before});
  }

  Schedule& schedule_;
  const Caps& caps_;
  Graph& graph_;
  const std::vector<bool> visible_;
  const Accesses uses_;
  BufferId result_ = ir::kNone;  // The result of the reduction that is rewritten.
};

}  // namespace

void rows_together(Schedule& schedule, const Caps& caps) {
  if (!caps.is_cpu) Rows(schedule, caps).run();
}

}  // namespace ocl::schedule
