// csrc/ir/simplify_body.cpp: one walk over a body that builds it anew. Each op is folded, replaced by an earlier one,
// or kept. IEEE semantics are preserved: x + 0.0 is not x (it turns -0 into 0), and x * 0.0 is not 0.
#include "csrc/ir/simplify_body.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::ir {

bool is_lossless(DType from, DType to) {
  if (from == to || from == DType::kBool) return true;
  if (is_f8(from) && is_narrow_float(to) && !is_f8(to)) return true;
  if (is_floating(from)) return (to == DType::kF32 && compute_type(from) == DType::kF32) || to == DType::kF64;
  if (to == DType::kBool) return false;
  const int bits = 8 * size_bytes(from);
  if (is_f8(to)) return false;
  if (is_floating(to)) return bits <= (to == DType::kF64 ? 32 : (to == DType::kF32 ? 16 : (to == DType::kF16 ? 8 : 8)));
  if (to == DType::kU8) return false;
  return size_bytes(to) > size_bytes(from);
}

namespace {

Scalar integer(int64_t value, DType dtype) { return {false, 0, wrapped(value, dtype)}; }
Scalar real(double value, DType dtype) {
  return {true, dtype == DType::kF64 ? value : static_cast<double>(static_cast<float>(value)), 0};
}

std::optional<Scalar> fold_cast(const Scalar& x, DType to) {
  if (is_narrow_float(to)) return {};  // Rounding to 8 and 16 bits is left to the device.
  if (to == DType::kBool) return integer(x.is_float ? x.f != 0 : x.i != 0, to);
  if (is_floating(to)) return real(x.is_float ? x.f : static_cast<double>(x.i), to);
  if (!x.is_float) return integer(x.i, to);
  // The result of this conversion is up to the device.
  if (!(std::fabs(x.f) < 9.0e18)) return {};
  return integer(static_cast<int64_t>(x.f), to);
}

}  // namespace

std::optional<Scalar> fold(OpCode code, const std::vector<Scalar>& x, DType operand, DType result) {
  const bool f = is_floating(operand);
  const auto modulo = [&](uint64_t v) { return integer(static_cast<int64_t>(v), result); };
  const uint64_t a = static_cast<uint64_t>(x[0].i), b = x.size() > 1 ? static_cast<uint64_t>(x[1].i) : 0;
  const double p = x[0].f, q = x.size() > 1 ? x[1].f : 0;
  const auto compare = [&](auto test) {
    return integer(f ? test(p, q) : test(x[0].i, x.size() > 1 ? x[1].i : 0), DType::kBool);
  };
  switch (code) {
    case OpCode::k_add:
      return f ? real(p + q, result) : modulo(a + b);
    case OpCode::k_sub:
      return f ? real(p - q, result) : modulo(a - b);
    case OpCode::k_mul:
      return f ? real(p * q, result) : modulo(a * b);
    case OpCode::k_neg:
      return f ? real(-p, result) : modulo(0 - a);
    case OpCode::k_relu:
      return f ? real(p < 0 ? 0 : p, result) : integer(std::max<int64_t>(x[0].i, 0), result);
    case OpCode::k_abs:
      return f ? real(std::fabs(p), result) : modulo(x[0].i < 0 ? 0 - a : a);
    case OpCode::k_div:
      return operand == DType::kF64 ? real(p / q, result) : real(static_cast<float>(p) / static_cast<float>(q), result);
    case OpCode::k_minimum:
      if (f) return std::isnan(p) || std::isnan(q) ? real(NAN, result) : real(std::min(p, q), result);
      return integer(std::min(x[0].i, x[1].i), result);
    case OpCode::k_maximum:
      if (f) return std::isnan(p) || std::isnan(q) ? real(NAN, result) : real(std::max(p, q), result);
      return integer(std::max(x[0].i, x[1].i), result);
    case OpCode::k_eq:
      return compare([](auto u, auto v) { return u == v; });
    case OpCode::k_ne:
      return compare([](auto u, auto v) { return u != v; });
    case OpCode::k_lt:
      return compare([](auto u, auto v) { return u < v; });
    case OpCode::k_le:
      return compare([](auto u, auto v) { return u <= v; });
    case OpCode::k_gt:
      return compare([](auto u, auto v) { return u > v; });
    case OpCode::k_ge:
      return compare([](auto u, auto v) { return u >= v; });
    case OpCode::k_logical_and:
      return integer(x[0].i && x[1].i, DType::kBool);
    case OpCode::k_logical_or:
      return integer(x[0].i || x[1].i, DType::kBool);
    case OpCode::k_logical_xor:
      return integer(x[0].i != x[1].i, DType::kBool);
    case OpCode::k_logical_not:
      return integer(!x[0].i, DType::kBool);
    default:
      return {};
  }
}

namespace {

class BodySimplifier {
 public:
  BodySimplifier(const Graph& graph, Node& node) : graph_(graph), node_(node), ranges_(graph.ranges(&node)) {}

  void run() {
    for (Op& op : node_.body.ops) {
      for (int& arg : op.args) arg = now_[arg];
      for (IndexExpr& e : op.index) e = simplify(resolve(renumber(e, now_)), ranges_);
      now_.push_back(rewrite(std::move(op)));
    }
    for (int& value : node_.reduced) value = now_[value];
    if (node_.reset != kNone) node_.reset = now_[node_.reset];
    for (Store& store : node_.stores) {
      if (node_.kind == NodeKind::kMap) store.value = now_[store.value];
      if (store.mask != kNone) store.mask = now_[store.mask];
      for (IndexExpr& e : store.index) e = simplify(resolve(renumber(e, now_)), ranges_);
    }
    drop_dead();
    node_.body.ops = std::move(ops_);
  }

 private:
  static IndexExpr renumber(const IndexExpr& e, const std::vector<int>& now) {
    if (!e.uses(SymbolKind::kValue)) return e;
    std::map<Symbol, IndexExpr> with;
    for (size_t i = 0; i < now.size(); ++i)
      with.emplace(Symbol{SymbolKind::kValue, static_cast<int>(i)}, IndexExpr::value(now[i]));
    return substitute(e, with);
  }

  /// Replaces each v* in e that is an integer constant or an index expression by that constant or expression.
  IndexExpr resolve(const IndexExpr& e) const {
    if (!e.uses(SymbolKind::kValue)) return e;
    std::map<Symbol, IndexExpr> with;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const Symbol v{SymbolKind::kValue, static_cast<int>(i)};
      if (ops_[i].code == OpCode::kIndex) with.emplace(v, ops_[i].index[0]);
      if (ops_[i].code == OpCode::kConstant && !ops_[i].constant.is_float) with.emplace(v, ops_[i].constant.i);
    }
    return substitute(e, with);
  }

  const Op& at(int value) const { return ops_[value]; }
  bool is_constant(int value) const { return at(value).code == OpCode::kConstant; }
  bool is_number(int value, double number) const {
    if (!is_constant(value)) return false;
    const Scalar& s = at(value).constant;
    return s.is_float ? s.f == number && !std::signbit(s.f) : static_cast<double>(s.i) == number;
  }

  int constant(const Scalar& value, DType dtype) {
    Op op;
    op.dtype = dtype;
    op.constant = value;
    return keep(std::move(op));
  }

  /// Returns the number of an equal earlier op. Adds the op if there is none.
  int keep(Op op) {
    const OpFact fact = facts(op.code).fact;
    if ((fact == OpFact::k_commutative || fact == OpFact::k_same_args) && op.args[0] > op.args[1])
      std::swap(op.args[0], op.args[1]);
    std::string key = std::to_string(static_cast<int>(op.code)) + name(op.dtype);
    for (const int arg : op.args) key += " v" + std::to_string(arg);
    for (const IndexExpr& e : op.index) key += " " + e.str();
    if (op.code == OpCode::kLoad) key += " b" + std::to_string(op.buffer);
    if (op.code == OpCode::kConstant) {
      uint64_t bits = 0;
      static_assert(sizeof bits == sizeof op.constant.f);
      std::copy_n(reinterpret_cast<const char*>(&op.constant.f), sizeof bits,
                  reinterpret_cast<char*>(&bits));  // the bits distinguish -0 from 0
      key += " " + std::to_string(op.constant.is_float ? bits : static_cast<uint64_t>(op.constant.i));
    }
    const auto [it, added] = known_.emplace(std::move(key), static_cast<int>(ops_.size()));
    if (added) ops_.push_back(std::move(op));
    return it->second;
  }

  int rewrite(Op op) {
    switch (op.code) {
      case OpCode::kConstant:
        return keep(std::move(op));
      case OpCode::kIndex:
        if (op.index[0].is_const()) return constant(integer(op.index[0].constant(), op.dtype), op.dtype);
        return keep(std::move(op));
      case OpCode::kLoad:
        if (!op.args.empty() && is_constant(op.args[0])) {
          if (!at(op.args[0]).constant.i) return constant({is_floating(op.dtype), 0, 0}, op.dtype);
          op.args.clear();
        }
        if (is_empty(op.buffer)) return constant({is_floating(op.dtype), 0, 0}, op.dtype);
        return keep(std::move(op));
      case OpCode::kCast:
        return rewrite_cast(std::move(op));
      default:
        break;
    }
    if (const int x = negated(op); x != kNone) {
      op.code = OpCode::k_neg;
      op.args = {x};
    }
    if (const int earlier = trivial(op); earlier != kNone) return earlier;
    if (std::all_of(op.args.begin(), op.args.end(), [&](int arg) { return is_constant(arg); })) {
      std::vector<Scalar> values;
      for (const int arg : op.args) values.push_back(at(arg).constant);
      if (const auto value = fold(op.code, values, compute_type(at(op.args[0]).dtype), op.dtype))
        return constant(*value, op.dtype);
    }
    return keep(std::move(op));
  }

  /// True for a buffer without elements. A load from it occurs only in a loop without iterations, but code generation
  /// might hoist the load out of that loop.
  bool is_empty(BufferId id) const {
    const Shape& sizes = graph_.buffers[id].sizes;
    return std::any_of(sizes.begin(), sizes.end(), [](const IndexExpr& size) { return size.is_const(0); });
  }

  int rewrite_cast(Op op) {
    int arg = op.args[0];
    if (at(arg).code == OpCode::kCast && is_lossless(at(at(arg).args[0]).dtype, at(arg).dtype)) arg = at(arg).args[0];
    const DType from = at(arg).dtype;
    // An f16 value is already held as f32.
    if (from == op.dtype || compute_type(from) == op.dtype) return arg;
    if (is_constant(arg))
      if (const auto value = fold_cast(at(arg).constant, op.dtype)) return constant(*value, op.dtype);
    op.args = {arg};
    return keep(std::move(op));
  }

  /// Returns the earlier value that the op equals, or kNone.
  int trivial(const Op& op) {
    const auto& a = op.args;
    const OpFact fact = facts(op.code).fact;
    if (fact == OpFact::k_same_args && a[0] == a[1]) return a[0];
    if ((fact == OpFact::k_idempotent || fact == OpFact::k_rounding) && at(a[0]).code == op.code) return a[0];
    if (const int other = involution(op); other != kNone) return other;
    switch (op.code) {
      case OpCode::k_add:
        if (is_integral(op.dtype, true)) return is_number(a[0], 0) ? a[1] : (is_number(a[1], 0) ? a[0] : kNone);
        return kNone;
      case OpCode::k_sub:
        return is_number(a[1], 0) ? a[0] : kNone;  // -0 - 0 is -0
      case OpCode::k_mul:
        return is_number(a[0], 1) ? a[1] : (is_number(a[1], 1) ? a[0] : kNone);
      case OpCode::k_div:
        return is_number(a[1], 1) ? a[0] : kNone;
      case OpCode::k_where:
        if (a[1] == a[2]) return a[1];
        return is_constant(a[0]) ? a[at(a[0]).constant.i ? 1 : 2] : kNone;
      case OpCode::k_logical_and:
        for (size_t i = 0; i < 2; ++i)
          if (is_constant(a[i])) return at(a[i]).constant.i ? a[1 - i] : a[i];
        return kNone;
      case OpCode::k_logical_or:
        for (size_t i = 0; i < 2; ++i)
          if (is_constant(a[i])) return at(a[i]).constant.i ? a[i] : a[1 - i];
        return kNone;
      default:
        return kNone;
    }
  }

  /// Returns x if the op is the integer 0 - x, x * -1 or -1 * x, otherwise kNone.
  int negated(const Op& op) const {
    if (!is_integral(op.dtype, false)) return kNone;
    const auto& a = op.args;
    if (op.code == OpCode::k_sub && is_number(a[0], 0)) return a[1];
    if (op.code == OpCode::k_mul) return is_number(a[0], -1) ? a[1] : (is_number(a[1], -1) ? a[0] : kNone);
    return kNone;
  }

  int involution(const Op& op) const {
    const bool undoes_itself = op.code == OpCode::k_neg || op.code == OpCode::k_logical_not || op.code == OpCode::k_bitwise_not;
    return undoes_itself && at(op.args[0]).code == op.code ? at(op.args[0]).args[0] : kNone;
  }

  void drop_dead() {
    std::vector<bool> used(ops_.size(), false);
    const std::function<void(const IndexExpr&)> use = [&](const IndexExpr& e) {
      if (e.op() == IndexOp::kSymbol && e.symbol().kind == SymbolKind::kValue) used[e.symbol().index] = true;
      for (const IndexExpr& arg : e.args()) use(arg);
    };
    for (const int value : node_.reduced) used[value] = true;
    if (node_.reset != kNone) used[node_.reset] = true;
    for (const Store& store : node_.stores) {
      if (node_.kind == NodeKind::kMap) used[store.value] = true;
      if (store.mask != kNone) used[store.mask] = true;
      for (const IndexExpr& e : store.index) use(e);
    }
    for (size_t i = ops_.size(); i-- > 0;) {
      if (!used[i]) continue;
      for (const int arg : ops_[i].args) used[arg] = true;
      for (const IndexExpr& e : ops_[i].index) use(e);
    }
    std::vector<int> now(ops_.size(), kNone);
    std::vector<Op> kept;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (!used[i]) continue;
      now[i] = static_cast<int>(kept.size());
      for (int& arg : ops_[i].args) arg = now[arg];
      for (IndexExpr& e : ops_[i].index) e = renumber(e, now);
      kept.push_back(std::move(ops_[i]));
    }
    for (int& value : node_.reduced) value = now[value];
    if (node_.reset != kNone) node_.reset = now[node_.reset];
    for (Store& store : node_.stores) {
      if (node_.kind == NodeKind::kMap) store.value = now[store.value];
      if (store.mask != kNone) store.mask = now[store.mask];
      for (IndexExpr& e : store.index) e = renumber(e, now);
    }
    ops_ = std::move(kept);
  }

  const Graph& graph_;
  Node& node_;
  const Ranges ranges_;
  std::vector<Op> ops_;
  std::vector<int> now_;  // Number of an op in the old body -> its number in the new body.
  std::unordered_map<std::string, int> known_;
};

}  // namespace

void simplify_body(const Graph& graph, Node& node) {
  if (node.body.ops.empty()) return;
  BodySimplifier(graph, node).run();
}

}  // namespace ocl::ir
