// csrc/codegen/nibble_sums.cpp: see nibble_sums.h.
#include "csrc/codegen/nibble_sums.h"

#include <algorithm>
#include <functional>

#include "csrc/codegen/accumulators.h"
#include "csrc/codegen/rounded_uses.h"
#include "csrc/codegen/same_value.h"

namespace ocl::codegen {

namespace {

constexpr int64_t kHalf = 15;     // The lower half of a byte.
constexpr int kMostRows = 8;      // Columns of the instruction.
constexpr int kMostMatrices = 2;  // Matrices whose weights a work-item multiplies at once.

/// Reads the ops of one node.
class Pattern {
 public:
  Pattern(const ir::Graph& graph, ir::NodeId node) : graph_(graph), id_(node), node_(graph.nodes[node]) {}

  std::optional<NibbleSum> match() const {
    NibbleSum sum;
    sum.node = id_;
    int value = node_.reduced[0];
    for (; is(value, OpCode::k_mul); value = arg(value, 0)) sum.scales.push_back(arg(value, 1));
    if (!is(value, OpCode::k_fma) || !is(arg(value, 0), OpCode::k_sub)) return std::nullopt;
    const int difference = arg(value, 0), part = arg(difference, 1), rest = arg(value, 2);
    if (!is(part, OpCode::k_mul) || !is_number(arg(part, 1), 1.0 / (kHalf + 1))) return std::nullopt;
    sum.x0 = arg(difference, 0);
    sum.x1 = arg(part, 0);
    const std::optional<int> bytes = bytes_of_half(arg(value, 1));
    const bool has_zero = is(rest, OpCode::k_fma);
    if (!bytes || (!has_zero && !is(rest, OpCode::k_mul)) || arg(rest, 0) != part) return std::nullopt;
    sum.bytes = *bytes;
    const int whole = arg(rest, 1);
    if (!is(whole, OpCode::kCast) || arg(whole, 0) != sum.bytes) return std::nullopt;
    sum.number = has_zero ? 1 : 0;
    if (has_zero && !take_zero(arg(rest, 2), sum)) return std::nullopt;
    return sum;
  }

 private:
  const ir::Op& op(int i) const { return node_.body.ops[static_cast<size_t>(i)]; }
  bool is(int i, OpCode code) const { return op(i).code == code; }
  int arg(int i, size_t k) const { return op(i).args[k]; }
  bool is_number(int i, double number) const { return is(i, OpCode::kConstant) && op(i).constant.f == number; }

  /// Returns the load of which `i` is the lower half, as a float.
  std::optional<int> bytes_of_half(int i) const {
    if (!is(i, OpCode::kCast) || !is(arg(i, 0), OpCode::k_bitwise_and)) return std::nullopt;
    const int masked = arg(i, 0), load = arg(masked, 0);
    const ir::Op& mask = op(arg(masked, 1));
    const bool halves = mask.code == OpCode::kConstant && !mask.constant.is_float && mask.constant.i == kHalf;
    const bool loads = is(load, OpCode::kLoad) && op(load).args.empty() && graph_.buffers[op(load).buffer].dtype == DType::kU8;
    return halves && loads ? std::optional(load) : std::nullopt;
  }

  /// Reads the factors of the product in op `i`, (x0 + x1) * number * zero, into `sum`. Returns false if the op has another
  /// form.
  bool take_zero(int i, NibbleSum& sum) const {
    for (; is(i, OpCode::k_mul) || is(i, OpCode::k_neg); i = arg(i, 0)) {
      if (is(i, OpCode::k_neg)) {
        sum.number = -sum.number;
      } else if (is(arg(i, 1), OpCode::kConstant)) {
        sum.number *= op(arg(i, 1)).constant.f;
      } else {
        if (sum.zero != ir::kNone) return false;
        sum.zero = arg(i, 1);
      }
    }
    return is(i, OpCode::k_add) && arg(i, 0) == sum.x0 && arg(i, 1) == sum.x1;
  }

  const ir::Graph& graph_;
  const ir::NodeId id_;
  const ir::Node& node_;
};

class Finder {
 public:
  explicit Finder(Nest& nest) : nest_(nest), graph_(nest.kernel.graph()) {}

  std::optional<NibbleGroup> find() {
    const schedule::Group& group = nest_.group;
    const IndexExpr rows = ir::simplify(ir::product(group.sizes), nest_.ranges);
    if (group.strategy != schedule::LoopStrategy::kRow || group.reduce_sizes.size() != 1 || !rows.is_const() ||
        !group.reduce_sizes[0].is_const())
      return std::nullopt;
    for (size_t p = 0; p < group.phases.size(); ++p)
      if (group.phases[p].inner != (p == 0)) return std::nullopt;
    found_.rows = rows.constant();
    found_.bytes = group.reduce_sizes[0].constant();
    for (const ir::NodeId id : group.phases[0].nodes)
      if (!add(id)) return std::nullopt;
    if (found_.matrices.empty() || found_.matrices.size() > kMostMatrices || found_.vectors.size() > kMostRows)
      return std::nullopt;
    for (const int words : {4, 2, 1})
      if (fits(words)) {
        found_.words = words;
        return found_;
      }
    return std::nullopt;
  }

 private:
  bool add(ir::NodeId id) {
    const ir::Node& node = graph_.nodes[id];
    if (node.kind != ir::NodeKind::kReduce || node.reduction != ir::ReductionCode::k_sum) return false;
    const Accumulators sum(nest_.body, id);
    if (!sum.is_single() || sum.dtype(0) != DType::kF32) return false;
    NibbleGroup::Reduction& reduction = found_.reductions.emplace_back();
    reduction.node = id;
    if (!depends(id, node.reduced[0], SymbolKind::kLoop)) return true;
    const std::optional<NibbleSum> product = Pattern(graph_, id).match();
    if (!product || !is_row(*product, product->x0) || !is_row(*product, product->x1)) return false;
    reduction.matrix =
        number_of(found_.matrices, *product, [&](const NibbleSum& other) { return same_matrix(*product, other); });
    reduction.vector = number_of(found_.vectors, *product, [&](const NibbleSum& other) {
      return same(*product, product->x0, other, other.x0) && same(*product, product->x1, other, other.x1);
    });
    return true;
  }

  static int number_of(std::vector<NibbleSum>& list, const NibbleSum& sum, const std::function<bool(const NibbleSum&)>& equal) {
    const auto at = std::ranges::find_if(list, equal);
    const auto number = static_cast<int>(at - list.begin());
    if (at == list.end()) list.push_back(sum);
    return number;
  }

  bool same(const NibbleSum& a, int i, const NibbleSum& b, int j) const {
    return same_value(graph_.nodes[a.node], i, graph_.nodes[b.node], j);
  }

  bool same_matrix(const NibbleSum& a, const NibbleSum& b) const {
    if (a.number != b.number || (a.zero == ir::kNone) != (b.zero == ir::kNone) || !same(a, a.bytes, b, b.bytes)) return false;
    if (a.zero != ir::kNone && !same(a, a.zero, b, b.zero)) return false;
    return std::ranges::equal(a.scales, b.scales, [&](int i, int j) { return same(a, i, b, j); });
  }

  /// Calls `visit` for each op that the value depends on, until it returns true. Returns whether it did.
  bool any_op(ir::NodeId node, int i, const std::function<bool(const ir::Op&)>& visit) const {
    const ir::Op& op = graph_.nodes[node].body.ops[static_cast<size_t>(i)];
    return visit(op) || std::ranges::any_of(op.args, [&](int arg) { return any_op(node, arg, visit); });
  }

  bool depends(ir::NodeId node, int i, SymbolKind kind) const {
    return any_op(node, i, [&](const ir::Op& op) {
      return std::ranges::any_of(op.index, [&](const IndexExpr& e) { return e.uses(kind) || e.uses(SymbolKind::kValue); });
    });
  }

  /// True if the value is the same for all rows of the matrix, and as exact as the model's if it is rounded to bf16: it is
  /// loaded as such, or the product is rounded to bf16, too, so that its operands have this type.
  bool is_row(const NibbleSum& sum, int x) const {
    const bool other_type = any_op(sum.node, x, [&](const ir::Op& op) {
      const bool along = std::ranges::any_of(op.index, [](const IndexExpr& e) { return e.uses(kAlong); });
      return op.code == OpCode::kIndex ||
             (op.code == OpCode::kLoad && along && graph_.buffers[op.buffer].dtype != DType::kBF16);
    });
    if (other_type || depends(sum.node, x, SymbolKind::kLoop)) return false;
    return graph_.nodes[sum.node].body.ops[static_cast<size_t>(x)].code == OpCode::kLoad || is_rounded(sum.node);
  }

  bool is_rounded(ir::NodeId node) const {
    const schedule::Schedule& schedule = nest_.kernel.schedule();
    return std::ranges::all_of(graph_.nodes[node].stores, [&](const ir::Store& store) {
      if (graph_.buffers[store.buffer].dtype == DType::kBF16) return true;
      if (schedule.placements[store.buffer].kind != schedule::Placement::Kind::kNowhere) return false;
      for (const ir::NodeId reader : nest_.group.nodes()) {
        const std::vector<ir::Op>& ops = graph_.nodes[reader].body.ops;
        for (size_t i = 0; i < ops.size(); ++i)
          if (ops[i].code == OpCode::kLoad && ops[i].buffer == store.buffer &&
              rounded_to(schedule, reader, static_cast<int>(i)) != DType::kBF16)
            return false;
      }
      return true;
    });
  }

  bool fits(int words) const {
    const int64_t step = int64_t{16} * words;
    if (found_.bytes % step != 0) return false;
    return std::ranges::all_of(found_.matrices, [&](const NibbleSum& sum) {
      const ir::Op& load = graph_.nodes[sum.node].body.ops[static_cast<size_t>(sum.bytes)];
      const auto affine = ir::affine_in(nest_.body.offset_of(load.buffer, load.index), kAlong);
      if (!affine || !affine->coefficient.is_const(1) || !nest_.ranges.known_divides(int64_t{4} * words, affine->rest))
        return false;
      return (sum.zero == ir::kNone || is_uniform(sum.node, sum.zero, step)) &&
             std::ranges::all_of(sum.scales, [&](int scale) { return is_uniform(sum.node, scale, step); });
    });
  }

  /// True if the value is the same for the `step` bytes from each multiple of `step` on.
  bool is_uniform(ir::NodeId node, int i, int64_t step) const {
    const IndexExpr first = IndexExpr::reduce(1), inside = IndexExpr::reduce(2);
    ir::Ranges ranges = nest_.ranges;
    ranges.set_extent(first.symbol(), found_.bytes / step);
    ranges.set_extent(inside.symbol(), step);
    return !any_op(node, i, [&](const ir::Op& op) {
      return std::ranges::any_of(op.index, [&](const IndexExpr& e) {
        const IndexExpr at = ir::simplify(ir::substitute(e, {{kAlong, first * step + inside}}), ranges);
        return e.uses(SymbolKind::kValue) || at.uses(inside.symbol());
      });
    });
  }

  Nest& nest_;
  const ir::Graph& graph_;
  NibbleGroup found_;
};

}  // namespace

std::optional<NibbleGroup> nibble_group(Nest& nest) {
  if (!nest.kernel.dialect().multiplies_bf16 || nest.batch_elements) return std::nullopt;
  return Finder(nest).find();
}

}  // namespace ocl::codegen
