// csrc/ir/index_tree.cpp: nodes of index expressions, their order and their text.
#include "csrc/ir/index_tree.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl::ir {

struct IndexExpr::Node {
  IndexOp op = IndexOp::kConst;
  int64_t value = 0;
  Symbol symbol;
  std::vector<IndexExpr> args;
  size_t hash = 0;
  int count = 1;  // Nodes of the tree below and including this one.
};

namespace {

size_t mix(size_t seed, size_t value) { return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2)); }

std::string operand(const IndexExpr& e) {
  const bool bare =
      e.op() == IndexOp::kSymbol || e.op() == IndexOp::kMin || e.op() == IndexOp::kMax || (e.is_const() && e.constant() >= 0);
  return bare ? e.str() : "(" + e.str() + ")";
}

std::string magnitude(int64_t value) {
  const std::string text = std::to_string(value);
  return text[0] == '-' ? text.substr(1) : text;
}

/// Returns the number in a term of a sum: a constant, or the last factor of a product. 1 if there is none.
int64_t coefficient_of(const IndexExpr& term) {
  const IndexExpr& last = term.op() == IndexOp::kMul ? term.args().back() : term;
  return last.is_const() ? last.constant() : 1;
}

/// Returns the text of a term without its sign.
std::string unsigned_term(const IndexExpr& term) {
  const int64_t coefficient = coefficient_of(term);
  if (term.is_const()) return magnitude(coefficient);
  if (term.op() != IndexOp::kMul) return term.str();
  std::string text;
  for (const IndexExpr& factor : term.args())
    if (!factor.is_const()) text += (text.empty() ? "" : "*") + operand(factor);
  return coefficient == 1 || coefficient == -1 ? text : text + "*" + magnitude(coefficient);
}

}  // namespace

IndexExpr IndexExpr::node(IndexOp op, std::vector<IndexExpr> args) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->hash = static_cast<size_t>(op);
  for (const IndexExpr& arg : args) {
    node->hash = mix(node->hash, arg.hash());
    node->count += arg.node_count();
  }
  node->args = std::move(args);
  return IndexExpr(std::shared_ptr<const Node>(std::move(node)));
}

IndexExpr::IndexExpr(int64_t value) {
  constexpr int64_t kLow = -1, kHigh = 64;  // These constants are made once, because most constants are among them.
  static const auto small = [] {
    std::vector<std::shared_ptr<const Node>> nodes;
    for (int64_t v = kLow; v <= kHigh; ++v)
      nodes.push_back(std::make_shared<Node>(Node{IndexOp::kConst, v, {}, {}, mix(17, static_cast<size_t>(v)), 1}));
    return nodes;
  }();
  node_ = value >= kLow && value <= kHigh
              ? small[value - kLow]
              : std::make_shared<Node>(Node{IndexOp::kConst, value, {}, {}, mix(17, static_cast<size_t>(value)), 1});
}

IndexExpr IndexExpr::symbol(SymbolKind kind, int index) {
  const size_t hash = mix(static_cast<size_t>(kind) + 101, static_cast<size_t>(index));
  return IndexExpr(std::make_shared<Node>(Node{IndexOp::kSymbol, 0, {kind, index}, {}, hash, 1}));
}

IndexOp IndexExpr::op() const { return node_->op; }
size_t IndexExpr::hash() const { return node_->hash; }
int IndexExpr::node_count() const { return node_->count; }
const std::vector<IndexExpr>& IndexExpr::args() const { return node_->args; }

int64_t IndexExpr::constant() const {
  OCL_ASSERT(is_const(), "not a constant: " + str());
  return node_->value;
}

Symbol IndexExpr::symbol() const {
  OCL_ASSERT(op() == IndexOp::kSymbol, "not a symbol: " + str());
  return node_->symbol;
}

bool IndexExpr::uses(Symbol s) const {
  if (op() == IndexOp::kSymbol) return node_->symbol == s;
  return std::any_of(args().begin(), args().end(), [&](const IndexExpr& arg) { return arg.uses(s); });
}

bool IndexExpr::uses(SymbolKind kind) const {
  if (op() == IndexOp::kSymbol) return node_->symbol.kind == kind;
  return std::any_of(args().begin(), args().end(), [&](const IndexExpr& arg) { return arg.uses(kind); });
}

bool operator==(const IndexExpr& a, const IndexExpr& b) {
  return a.node_ == b.node_ || (a.hash() == b.hash() && IndexExpr::order(a, b) == 0);
}

int IndexExpr::order(const IndexExpr& a, const IndexExpr& b) {
  if (a.node_ == b.node_) return 0;
  if (a.op() != b.op()) return a.op() < b.op() ? -1 : 1;
  if (a.is_const()) return a.node_->value == b.node_->value ? 0 : (a.node_->value < b.node_->value ? -1 : 1);
  if (a.op() == IndexOp::kSymbol) {
    const auto o = a.node_->symbol <=> b.node_->symbol;
    return o == 0 ? 0 : (o < 0 ? -1 : 1);
  }
  return order(a.args(), b.args());
}

int IndexExpr::order(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (const int o = order(a[i], b[i])) return o;
  return a.size() == b.size() ? 0 : (a.size() < b.size() ? -1 : 1);
}

std::string IndexExpr::str() const {
  switch (op()) {
    case IndexOp::kConst:
      return std::to_string(constant());
    case IndexOp::kSymbol:
      return "sirv"[static_cast<int>(symbol().kind)] + std::to_string(symbol().index);
    case IndexOp::kFloorDiv:
      return operand(args()[0]) + " // " + operand(args()[1]);
    case IndexOp::kMod:
      return operand(args()[0]) + " % " + operand(args()[1]);
    case IndexOp::kMin:
      return "min(" + args()[0].str() + ", " + args()[1].str() + ")";
    case IndexOp::kMax:
      return "max(" + args()[0].str() + ", " + args()[1].str() + ")";
    default:
      break;
  }
  std::string text;
  for (const IndexExpr& term : op() == IndexOp::kAdd ? args() : std::vector<IndexExpr>{*this}) {
    const bool negative = coefficient_of(term) < 0;
    text += text.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    text += unsigned_term(term);
  }
  return text;
}

}  // namespace ocl::ir
