// csrc/schedule/few_rows.cpp: see few_rows.h.
#include "csrc/schedule/few_rows.h"

#include <algorithm>
#include <set>

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"

namespace ocl::schedule {
namespace {

constexpr int64_t kMostRows = 8;
constexpr int64_t kMostPacked = 8;  // Most elements that are packed in one: int4 in an int32.
// A matrix that is not packed: the most rows, and the least bytes of the matrix, for which rows are read one by one.
constexpr int64_t kMostPlainRows = 4;
constexpr double kLeastPlainBytes = 256 << 10;
constexpr double kFewerBytes = 0.75;  // A matrix is packed if it is read from at most this part of its bytes.
constexpr int64_t kParts = 4,
                  kPartedDepth = 256;  // Parts of a row whose elements are not packed, and the depth that they divide.
constexpr size_t kMostOps = 200;       // Most ops of a sum before its elements are read together.

bool is_packed(DType dtype) { return ir::is_integral(dtype, false) || ir::is_f8(dtype); }

/// Which elements are packed in one: those at k = factor * r + step * p for p < count.
struct Packing {
  int64_t count = 1, factor = 1, step = 0;
  IndexExpr index(int64_t p) const { return IndexExpr::reduce(0) * factor + step * p; }
};

class Expander {
 public:
  Expander(Graph& graph, bool is_cpu)
      : graph_(graph), is_cpu_(is_cpu), writers_(graph.buffers.size()), visible_(visible_buffers(graph)) {
    for (NodeId i = 0; i < static_cast<NodeId>(graph.nodes.size()); ++i)
      for (const BufferId buffer : ir::writes(graph.nodes[i])) writers_[buffer].push_back(i);
  }

  /// Appends the sums of a product to `nodes`. Returns false if the product stays as it is.
  bool expand(NodeId id, std::vector<Node>& nodes) {
    const Node& node = graph_.nodes[id];
    if (node.kind != NodeKind::kContract || !node.sizes[0].is_const(1)) return false;
    for (const int matrix : {1, 0}) {
      const IndexExpr& rows = node.sizes[matrix == 1 ? 1 : 2];
      if (!rows.is_const() || rows.constant() > kMostRows || rows.constant() < 1) continue;
      if (!reads_packed(id, node.operands[matrix]) && !reads_rows(node, matrix, rows.constant())) continue;
      id_ = id;
      matrix_ = matrix;
      vectors_ = add_buffer(graph_.buffers[node.operands[1 - matrix].buffer].dtype, {rows, node.reduce_sizes[0]});
      add_sums(rows.constant(), nodes);
      return true;
    }
    return false;
  }

 private:
  /// Returns the node that computes the buffer and may become part of a sum that node `id` stands for; kNone if there is none.
  NodeId producer(NodeId id, BufferId buffer) const {
    if (visible_[buffer] || writers_[buffer].size() != 1) return ir::kNone;
    const NodeId p = writers_[buffer][0];
    const Node& node = graph_.nodes[p];
    if (p >= id || node.kind != NodeKind::kMap || node.stores.size() != 1 || !can_inline(node, node.stores[0]))
      return ir::kNone;
    for (const BufferId read : ir::reads(node))
      for (const NodeId w : writers_[read])
        if (w > p && w <= id) return ir::kNone;
    return p;
  }

  /// Collects the buffers from which producers compute `buffer`.
  void sources(NodeId id, BufferId buffer, std::set<BufferId>& origins, std::set<BufferId>& seen) const {
    if (!seen.insert(buffer).second) return;
    const NodeId p = producer(id, buffer);
    if (p == ir::kNone) {
      origins.insert(buffer);
      return;
    }
    for (const BufferId read : ir::reads(graph_.nodes[p])) sources(id, read, origins, seen);
  }

  bool reads_packed(NodeId id, const ir::View& view) const {
    if (producer(id, view.buffer) == ir::kNone) return false;
    std::set<BufferId> origins, seen;
    sources(id, view.buffer, origins, seen);
    double bytes = 0;
    for (const BufferId buffer : origins) bytes += typical_bytes(graph_, buffer);
    const double whole = typical_product(graph_, view.sizes) * size_bytes(graph_.buffers[view.buffer].dtype);
    return std::any_of(origins.begin(), origins.end(), [&](BufferId b) { return is_packed(graph_.buffers[b].dtype); }) &&
           bytes <= kFewerBytes * whole;
  }

  /// True if a GPU reads the matrix faster row by row than in tiles, of which a few rows would fill a small part.
  bool reads_rows(const Node& node, int matrix, int64_t rows) const {
    const ir::View& view = node.operands[matrix];
    const ir::Buffer& buffer = graph_.buffers[view.buffer];
    if (is_cpu_ || rows > kMostPlainRows || buffer.role != ir::BufferRole::kInput || !buffer.strides) return false;
    if (!is_floating(buffer.dtype) || !node.reduce_sizes[0].is_const() || node.reduce_sizes[0].constant() % kPartedDepth != 0)
      return false;
    if (typical_product(graph_, view.sizes) * size_bytes(buffer.dtype) < kLeastPlainBytes) return false;
    ir::Ranges ranges = graph_.ranges();
    for (int d = 0; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, view.sizes[d]);
    const auto along = affine_in(linear_offset(buffer, view.coords, ranges), {ir::SymbolKind::kLoop, matrix == 1 ? 1 : 2});
    return along && along->coefficient.is_const(1);
  }

  int load(Node& node, const ir::View& view, const Coords& at, DType type, const ir::Ranges& ranges) const {
    LoopMap map;
    for (size_t d = 0; d < at.size(); ++d) map.emplace(ir::Symbol{ir::SymbolKind::kLoop, static_cast<int>(d)}, at[d]);
    const DType stored = compute_type(graph_.buffers[view.buffer].dtype);
    const int value = push_load(node.body, stored, view.buffer, substitute(view.coords, map, ranges));
    return stored == type ? value : push(node.body, OpCode::kCast, type, {value});
  }

  BufferId add_buffer(DType dtype, const ir::Shape& sizes) {
    ir::Buffer buffer;
    buffer.dtype = dtype;
    buffer.sizes = sizes;
    writers_.emplace_back();
    visible_.push_back(false);
    return graph_.add_buffer(std::move(buffer));
  }

  /// Appends the sums of `rows` rows. Several have a result each, which a Map then stores, so that one launch can compute them
  /// all.
  void add_sums(int64_t rows, std::vector<Node>& nodes) {
    const BufferId out = graph_.nodes[id_].outputs[0];
    std::vector<Node> sums;
    for (int64_t row = 0; row < rows; ++row) {
      sums.push_back(sum_of_row(row));
      keep_unrounded(sums.back());
    }
    const Packing form = packing(sums[0]);
    const bool apart = form.factor > 1 && !reads_every_second(form);
    if (apart) nodes.push_back(vectors_apart(form));
    Node join;
    join.origin = sums[0].origin;
    join.sizes = sums[0].sizes;
    for (int64_t row = 0; row < rows; ++row) {
      Node& sum = sums[row];
      read_together(sum, form, apart);
      const IndexExpr n = IndexExpr::loop(0), m = row;
      const Coords at = {0, matrix_ == 1 ? m : n, matrix_ == 1 ? n : m};
      if (rows == 1) {
        sum.stores.push_back({out, at, 0});
      } else {
        const DType type = sum.body.ops[sum.reduced[0]].dtype;
        const BufferId result = add_buffer(type, sum.sizes);
        sum.stores.push_back({result, {n}, 0});
        int value = push_load(join.body, type, result, {n});
        if (const DType stored = graph_.buffers[out].dtype; stored != type)
          value = push(join.body, OpCode::kCast, stored, {value});
        join.stores.push_back({out, at, value});
      }
      nodes.push_back(std::move(sum));
    }
    if (rows > 1) nodes.push_back(std::move(join));
  }

  /// Returns the sums of one row. They read it from vectors_, which is not filled yet.
  Node sum_of_row(int64_t row) const {
    const Node& product = graph_.nodes[id_];
    const IndexExpr n = IndexExpr::loop(0), k = IndexExpr::reduce(0);
    Node node;
    node.kind = NodeKind::kReduce;
    node.origin = product.origin;
    node.sizes = {product.sizes[matrix_ == 1 ? 2 : 1]};
    node.reduce_sizes = product.reduce_sizes;
    node.reduction = ir::reduction_code("sum");
    const ir::View& matrix = product.operands[matrix_];
    const DType type =
        promote(compute_type(graph_.buffers[product.outputs[0]].dtype), compute_type(graph_.buffers[matrix.buffer].dtype));
    const ir::Ranges ranges = graph_.ranges(&node);
    const ir::View vectors{vectors_, {}, {IndexExpr::loop(0), IndexExpr::loop(1)}};
    const int x = load(node, vectors, {row, k}, type, ranges);
    const int y = load(node, matrix, matrix_ == 1 ? Coords{0, k, n} : Coords{0, n, k}, type, ranges);
    node.reduced = {push(node.body, ir::op_code("mul"), type, {x, y})};
    inline_matrix(node, matrix.buffer);
    return node;
  }

  /// Makes the nodes that compute the matrix part of the sum.
  void inline_matrix(Node& node, BufferId matrix) const {
    std::vector<BufferId> wanted = {matrix};
    while (!wanted.empty()) {
      const BufferId buffer = wanted.back();
      wanted.pop_back();
      const NodeId p = producer(id_, buffer);
      if (p == ir::kNone || node.body.ops.size() + graph_.nodes[p].body.ops.size() > kMostOps) continue;
      inline_producer(node, graph_.nodes[p], graph_.nodes[p].stores[0], graph_);
      for (const BufferId read : ir::reads(graph_.nodes[p])) wanted.push_back(read);
    }
  }

  // Elements that are packed in one

  /// Notes the divisor of k // divisor and k % divisor in an expression.
  void divisors(const IndexExpr& e, std::set<int64_t>& numbers) const {
    if (e.is_const() || e.op() == IndexOp::kSymbol) return;
    const bool divides = e.op() == IndexOp::kFloorDiv || e.op() == IndexOp::kMod;
    if (divides && e.args()[0] == IndexExpr::reduce(0) && e.args()[1].is_const()) numbers.insert(e.args()[1].constant());
    for (const IndexExpr& arg : e.args()) divisors(arg, numbers);
  }

  Packing packing(const Node& node) const {
    if (!node.reduce_sizes[0].is_const()) return {};
    const int64_t depth = node.reduce_sizes[0].constant();
    std::set<int64_t> of_loads, of_choices;
    for (const Op& op : node.body.ops) {
      const bool packed = op.code == OpCode::kLoad && is_packed(graph_.buffers[op.buffer].dtype);
      for (const IndexExpr& e : op.index)
        if (packed || op.code == OpCode::kIndex) divisors(e, packed ? of_loads : of_choices);
    }
    for (const std::set<int64_t>* found : {&of_loads, &of_choices})
      for (const int64_t d : *found)
        if (d > 1 && d <= kMostPacked && depth % d == 0) return {d, d, 1};
    for (const int64_t d : of_choices)
      if (d > 1 && depth % d == 0 && depth / d > 1 && depth / d <= kMostPacked) return {depth / d, 1, d};
    // Elements of different parts of the row: a multiply-add for each, and one sum for all. CPUs read a row faster from one
    // place.
    if (!is_cpu_ && depth % kPartedDepth == 0) return {kParts, 1, depth / kParts};
    return {};
  }

  /// Returns the view's coordinates of element k of row m.
  Coords of_vector(const IndexExpr& m, const IndexExpr& k, const ir::Ranges& ranges) const {
    const ir::View& view = graph_.nodes[id_].operands[1 - matrix_];
    LoopMap map;
    const Coords at = matrix_ == 1 ? Coords{0, m, k} : Coords{0, k, m};
    for (size_t d = 0; d < at.size(); ++d) map.emplace(ir::Symbol{ir::SymbolKind::kLoop, static_cast<int>(d)}, at[d]);
    return substitute(view.coords, map, ranges);
  }

  /// True if a GPU reads the elements from the rows where they are: a vector of every second element is half of two vectors.
  bool reads_every_second(const Packing& form) const {
    if (is_cpu_ || form.factor != 2) return false;
    ir::Buffer rows = graph_.buffers[graph_.nodes[id_].operands[1 - matrix_].buffer];
    if (!rows.strides) rows.strides = ir::contiguous_strides(rows.sizes);
    const ir::Ranges ranges = graph_.ranges(&graph_.nodes[id_]);
    const ir::Symbol along{ir::SymbolKind::kReduce, 0};
    const auto affine = affine_in(linear_offset(rows, of_vector(0, IndexExpr::reduce(0), ranges), ranges), along);
    return affine && affine->coefficient.is_const(1);
  }

  /// Returns a Map that stores the rows in vectors_, with the elements apart that are packed in one: [rows, count, depth /
  /// count]. The sums then read neighbours.
  Node vectors_apart(const Packing& form) {
    ir::Shape& sizes = graph_.buffers[vectors_].sizes;
    sizes = {sizes[0], form.count, floordiv(sizes[1], form.count)};
    graph_.buffers[vectors_].strides = ir::contiguous_strides(sizes);
    Node node;
    node.origin = graph_.nodes[id_].origin;
    node.sizes = sizes;
    const IndexExpr m = IndexExpr::loop(0), p = IndexExpr::loop(1), r = IndexExpr::loop(2);
    const DType dtype = graph_.buffers[vectors_].dtype;
    const BufferId from = graph_.nodes[id_].operands[1 - matrix_].buffer;
    const int value =
        push_load(node.body, compute_type(dtype), from, of_vector(m, r * form.factor + p * form.step, graph_.ranges(&node)));
    node.stores.push_back({vectors_, {m, p, r}, value});
    return node;
  }

  /// Lets a sum read the elements together that are packed in one, and its row from where it is, unless these are `apart`.
  void read_together(Node& node, const Packing& form, bool apart) const {
    const Node whole = node;
    node.reduce_sizes = {floordiv(node.reduce_sizes[0], form.count)};
    node.body.ops.clear();
    const ir::Ranges ranges = graph_.ranges(&node);
    int sum = ir::kNone;
    for (int64_t p = 0; p < form.count; ++p) {
      const size_t first = node.body.ops.size();
      const LoopMap loops = {{ir::Symbol{ir::SymbolKind::kReduce, 0}, form.index(p)}};
      const int value = append_body(node.body, whole, loops, ranges)[whole.reduced[0]];
      for (size_t i = first; i < node.body.ops.size(); ++i) {
        Op& op = node.body.ops[i];
        if (op.code != OpCode::kLoad || op.buffer != vectors_) continue;
        if (apart) {
          op.index = {op.index[0], p, IndexExpr::reduce(0)};
        } else {
          op.buffer = graph_.nodes[id_].operands[1 - matrix_].buffer;
          op.index = of_vector(op.index[0], op.index[1], ranges);
        }
      }
      Op& product = node.body.ops[value];
      if (sum != ir::kNone) {
        product.code = ir::op_code("fma");
        product.args.push_back(sum);
      }
      sum = value;
    }
    node.reduced = {sum};
    tidy(node);
  }

  Graph& graph_;
  const bool is_cpu_;
  std::vector<std::vector<NodeId>> writers_;
  std::vector<bool> visible_;
  // The product that is expanded, the operand with the packed matrix, and a buffer for the other operand.
  NodeId id_ = ir::kNone;
  int matrix_ = 1;
  BufferId vectors_ = ir::kNone;
};

}  // namespace

bool unpacks(const Graph& graph, const Node& node) {
  if (node.kind != NodeKind::kMap || node.stores.size() != 1) return false;
  const ir::Buffer& result = graph.buffers[node.stores[0].buffer];
  const bool packed = std::any_of(node.body.ops.begin(), node.body.ops.end(), [&](const Op& op) {
    return op.code == OpCode::kLoad && is_packed(graph.buffers[op.buffer].dtype);
  });
  const bool by_loaded = std::ranges::any_of(node.body.ops, [](const Op& op) { return gathers(op.index); });
  return packed && !by_loaded && is_floating(result.dtype) &&
         bytes_read(graph, node) <= kFewerBytes * typical_bytes(graph, node.stores[0].buffer);
}

void few_rows(Schedule& schedule, const Caps& caps) {
  Graph& graph = schedule.graph;
  Expander expander(graph, caps.is_cpu);
  std::vector<Node> nodes;
  for (NodeId i = 0; i < static_cast<NodeId>(graph.nodes.size()); ++i)
    if (expander.expand(i, nodes))
      schedule.log.push_back(graph.nodes[i].origin.op + ": sums along the depth, because the product has few rows");
    else
      nodes.push_back(graph.nodes[i]);
  graph.nodes = std::move(nodes);
}

}  // namespace ocl::schedule
