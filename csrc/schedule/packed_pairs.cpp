// csrc/schedule/packed_pairs.cpp: see packed_pairs.h.
#include "csrc/schedule/packed_pairs.h"

#include <algorithm>
#include <array>
#include <optional>

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"

namespace ocl::schedule {
namespace {

constexpr int kMixed = -2;  // An op that depends on several loads of bytes.
constexpr int64_t kHalf = 15, kHalfBits = 4;

/// x * (half of a byte - zero) * scales, by the numbers of ops.
struct Term {
  int x = ir::kNone, byte = ir::kNone;
  bool high = false;
  double zero = 0;             // A number, ...
  int zero_value = ir::kNone;  // ... or an op.
  bool zero_added = false;
  std::vector<int> scales;
};

/// The factors of a row, by the numbers of ops: x0 - x1 / 16, x1 / 16, and x0 + x1 times a number.
using Factors = std::array<int, 3>;

class Pairs {
 public:
  Pairs(Graph& graph, Node& node) : graph_(graph), node_(node) {}

  /// Rewrites the sum. Returns false if the sum has not the form. stored: appends a node that stores the factors; otherwise the
  /// sum computes them.
  bool rewrite(bool stored, std::vector<Node>& nodes) {
    if (node_.kind != NodeKind::kReduce || node_.reduction != ir::reduction_code("sum") || node_.reduced.size() != 1 ||
        node_.reduce_sizes.size() != 1)
      return false;
    find_bytes();
    const Op& sum = op(node_.reduced[0]);
    if (sum.code != ir::op_code("fma") || sum.dtype != DType::kF32) return false;
    const Op& product = op(sum.args[2]);
    if (product.code != ir::op_code("mul")) return false;
    const std::optional<Term> one = term(sum.args[0], sum.args[1]), other = term(product.args[0], product.args[1]);
    if (!one || !other || one->high == other->high || !fit(*one, *other)) return false;
    const Term &low = one->high ? *other : *one, &high = one->high ? *one : *other;
    replace(low, stored ? stored_factors(low, high, nodes) : push_factors(node_, low.x, high.x, low));
    return true;
  }

 private:
  const Op& op(int i) const { return node_.body.ops[static_cast<size_t>(i)]; }

  /// Finds for each op the load of bytes that it depends on.
  void find_bytes() {
    for (const Op& op : node_.body.ops) {
      int byte = op.code == OpCode::kLoad && graph_.buffers[op.buffer].dtype == DType::kU8 ? static_cast<int>(bytes_.size())
                                                                                           : ir::kNone;
      for (const int arg : op.args)
        if (bytes_[arg] != ir::kNone) byte = byte == ir::kNone || byte == bytes_[arg] ? bytes_[arg] : kMixed;
      bytes_.push_back(byte);
    }
  }

  /// True if the op can be computed outside of the loops over the matrix: it depends on r0 alone.
  bool is_of_row(int i) const {
    const Op& value = op(i);
    return std::none_of(value.index.begin(), value.index.end(),
                        [](const IndexExpr& e) { return e.uses(ir::SymbolKind::kLoop) || e.uses(ir::SymbolKind::kValue); }) &&
           std::all_of(value.args.begin(), value.args.end(), [&](int arg) { return is_of_row(arg); });
  }

  std::optional<Term> term(int a, int b) const {
    for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
      if (bytes_[x] != ir::kNone || bytes_[y] < 0 || !is_of_row(x)) continue;
      Term part;
      part.x = x;
      part.byte = bytes_[y];
      if (unpack(y, part)) return part;
    }
    return std::nullopt;
  }

  /// Takes scales and the zero off a value. Returns whether a half of a byte is left.
  bool unpack(int y, Term& part) const {
    for (; op(y).code == ir::op_code("mul"); y = op(y).args[bytes_[op(y).args[0]] == ir::kNone ? 1 : 0]) {
      const int scale = op(y).args[bytes_[op(y).args[0]] == ir::kNone ? 0 : 1];
      if (bytes_[scale] != ir::kNone) return false;
      part.scales.push_back(scale);
    }
    std::sort(part.scales.begin(), part.scales.end());
    const auto take_zero = [&](int i) {
      const bool adds = op(i).code == ir::op_code("add");
      if (!adds && op(i).code != ir::op_code("sub")) return i;
      const int zero_at = adds && bytes_[op(i).args[0]] == ir::kNone ? 0 : 1, zero = op(i).args[zero_at];
      if (bytes_[zero] != ir::kNone) return i;
      part.zero_added = adds;
      const Op& value = op(zero);
      if (value.code == OpCode::kConstant)
        part.zero = value.constant.is_float ? value.constant.f : static_cast<double>(value.constant.i);
      else
        part.zero_value = zero;
      return op(i).args[1 - zero_at];
    };
    const int in_float = take_zero(y);
    if (op(in_float).code != OpCode::kCast || op(in_float).dtype != DType::kF32) return false;
    int half = op(in_float).args[0];
    // A zero may be taken off before the conversion, in integers that hold the difference.
    if (in_float == y && op(half).dtype != DType::kU8) half = take_zero(half);
    if (part.zero_value != ir::kNone && op(part.zero_value).dtype != DType::kF32) return false;
    if (op(half).code == OpCode::kCast && ir::is_integral(op(half).dtype, false)) half = op(half).args[0];
    return is_half(half, part);
  }

  bool has_constant(int i, int64_t number) const {
    const Op& value = op(i);
    return value.code == OpCode::kConstant && !value.constant.is_float && value.constant.i == number;
  }

  bool is_half(int i, Term& part) const {
    if (op(i).dtype != DType::kU8) return false;
    if (op(i).code == ir::op_code("bitwise_and")) {
      const int number = bytes_[op(i).args[0]] == ir::kNone ? 0 : 1, masked = op(i).args[1 - number];
      if (!has_constant(op(i).args[number], kHalf)) return false;
      if (masked == part.byte) return true;
      i = masked;
    }
    part.high = true;
    return op(i).code == ir::op_code("shift_right") && op(i).args[0] == part.byte && has_constant(op(i).args[1], kHalfBits);
  }

  static bool fit(const Term& a, const Term& b) {
    return a.byte == b.byte && a.scales == b.scales && a.zero == b.zero && a.zero_value == b.zero_value &&
           a.zero_added == b.zero_added;
  }

  /// Appends op `i` of the sum to a Map over r0. Returns its number there.
  int copy(Node& map, int i, const LoopMap& loops, const ir::Ranges& ranges) const {
    Op made = op(i);
    for (int& arg : made.args) arg = copy(map, arg, loops, ranges);
    made.index = substitute(made.index, loops, ranges);
    return push(map.body, std::move(made));
  }

  static Factors push_factors(Node& node, int x0, int x1, const Term& low) {
    const int part = push(node.body, ir::op_code("mul"), DType::kF32, {x1, push_constant(node.body, 1.0 / (kHalf + 1))});
    const double zero = low.zero_value == ir::kNone ? low.zero : 1;
    const int both = push(node.body, ir::op_code("add"), DType::kF32, {x0, x1});
    return {push(node.body, ir::op_code("sub"), DType::kF32, {x0, part}), part,
            push(node.body, ir::op_code("mul"), DType::kF32, {both, push_constant(node.body, low.zero_added ? zero : -zero)})};
  }

  /// Appends a Map that stores the factors, and loads them in the sum.
  Factors stored_factors(const Term& low, const Term& high, std::vector<Node>& nodes) {
    ir::Buffer buffer;
    buffer.dtype = DType::kF32;
    buffer.sizes = {3, node_.reduce_sizes[0]};
    buffer.strides = ir::contiguous_strides(buffer.sizes);
    const BufferId factors = graph_.add_buffer(std::move(buffer));
    Node map;
    map.origin = node_.origin;
    map.sizes = node_.reduce_sizes;
    const ir::Ranges ranges = graph_.ranges(&map);
    const LoopMap loops = {{ir::Symbol{ir::SymbolKind::kReduce, 0}, IndexExpr::loop(0)}};
    const int x0 = copy(map, low.x, loops, ranges), x1 = copy(map, high.x, loops, ranges);
    Factors values = push_factors(map, x0, x1, low);
    for (int64_t k = 0; k < 3; ++k) {
      map.stores.push_back({factors, {k, IndexExpr::loop(0)}, values[k]});
      values[k] = push_load(node_.body, DType::kF32, factors, {k, IndexExpr::reduce(0)});
    }
    tidy(map);
    nodes.push_back(std::move(map));
    return values;
  }

  void replace(const Term& low, const Factors& factors) {
    const int mask = push(node_.body, {OpCode::kConstant, DType::kU8, {}, {false, 0, kHalf}, ir::kNone, {}});
    const int half = push(node_.body, ir::op_code("bitwise_and"), DType::kU8, {low.byte, mask});
    const int x = push(node_.body, OpCode::kCast, DType::kF32, {half}),
              whole = push(node_.body, OpCode::kCast, DType::kF32, {low.byte});
    int sum = ir::kNone;
    if (low.zero_value != ir::kNone)
      sum = push(node_.body, ir::op_code("mul"), DType::kF32, {factors[2], low.zero_value});
    else if (low.zero != 0)
      sum = factors[2];
    sum = sum == ir::kNone ? push(node_.body, ir::op_code("mul"), DType::kF32, {factors[1], whole})
                           : push(node_.body, ir::op_code("fma"), DType::kF32, {factors[1], whole, sum});
    sum = push(node_.body, ir::op_code("fma"), DType::kF32, {factors[0], x, sum});
    for (const int scale : low.scales) sum = push(node_.body, ir::op_code("mul"), DType::kF32, {sum, scale});
    node_.reduced = {sum};
    tidy(node_);
  }

  Graph& graph_;
  Node& node_;
  std::vector<int> bytes_;  // The load of bytes that an op depends on, kNone, or kMixed.
};

}  // namespace

void packed_pairs(Schedule& schedule, const Caps& caps) {
  Graph& graph = schedule.graph;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (Pairs(graph, node).rewrite(caps.is_cpu, nodes))
      schedule.log.push_back(node.origin.op + ": two int4 in a byte are read as the byte and its lower half");
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace ocl::schedule
