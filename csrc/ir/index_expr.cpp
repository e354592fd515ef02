// csrc/ir/index_expr.cpp: construction of index expressions in canonical form, evaluation, substitution.
// A sum is a polynomial over atoms (symbols, floordiv, mod, min, max), expanded and sorted, so that equal sums are equal trees.
#include "csrc/ir/index_expr.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "csrc/ir/index_terms.h"
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

constexpr size_t kMaxTerms = 128;  // A product that would have more terms than this is not expanded.

// Arithmetic modulo 2^64. It sets index_overflow() when a result does not fit.
int64_t wrap_add(int64_t a, int64_t b) {
  const auto result = static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  // Two numbers of one sign have a sum of the other sign.
  if (((a ^ result) & (b ^ result)) < 0) index_overflow() = true;
  return result;
}
int64_t wrap_mul(int64_t a, int64_t b) {
  const auto result = static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  const auto is_small = [](int64_t x) { return x == static_cast<int32_t>(x); };
  if (!(is_small(a) && is_small(b)) && a != 0 &&
      ((a == -1 && b == std::numeric_limits<int64_t>::min()) || (a != -1 && result / a != b)))
    index_overflow() = true;
  return result;
}

size_t mix(size_t seed, size_t value) { return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2)); }

int compare(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (const int o = IndexExpr::order(a[i], b[i])) return o;
  return a.size() == b.size() ? 0 : (a.size() < b.size() ? -1 : 1);
}

/// Compares terms in the order that they have in a sum: by factors, the constant last.
bool term_less(const Term& a, const Term& b) {
  if (a.factors.empty() || b.factors.empty()) return !a.factors.empty() && b.factors.empty();
  return compare(a.factors, b.factors) < 0;
}

Term multiply(const Term& a, const Term& b) {
  Term result{wrap_mul(a.coefficient, b.coefficient), {}};
  std::merge(a.factors.begin(), a.factors.end(), b.factors.begin(), b.factors.end(), std::back_inserter(result.factors),
             factor_less);
  return result;
}

Term term_of(const IndexExpr& e) {
  if (e.is_const()) return {e.constant(), {}};
  if (e.op() != IndexOp::kMul) return {1, {e}};
  Term term{1, {}};
  for (const IndexExpr& arg : e.args()) {
    if (arg.is_const())
      term.coefficient = arg.constant();
    else
      term.factors.push_back(arg);
  }
  return term;
}

}  // namespace

bool& index_overflow() {
  thread_local bool overflowed = false;
  return overflowed;
}

IndexExpr make_node(IndexOp op, std::vector<IndexExpr> args) {
  auto node = std::make_shared<IndexExpr::Node>();
  node->op = op;
  node->hash = static_cast<size_t>(op);
  for (const IndexExpr& arg : args) {
    node->hash = mix(node->hash, arg.hash());
    node->count += node_count(arg);
  }
  node->args = std::move(args);
  return IndexExpr(std::shared_ptr<const IndexExpr::Node>(std::move(node)));
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
int node_count(const IndexExpr& e) {
  int count = 1;
  for (const IndexExpr& arg : e.args()) count += node_count(arg);
  return count;
}
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
  return compare(a.args(), b.args());
}

Terms terms_of(const IndexExpr& e) {
  if (e.is_const(0)) return {};
  if (e.op() != IndexOp::kAdd) return {term_of(e)};
  Terms terms;
  for (const IndexExpr& arg : e.args()) terms.push_back(term_of(arg));
  return terms;
}

IndexExpr from_term(const Term& term) {
  if (term.coefficient == 0 || term.factors.empty()) return term.coefficient;
  if (term.coefficient == 1 && term.factors.size() == 1) return term.factors[0];
  std::vector<IndexExpr> args = term.factors;
  if (term.coefficient != 1) args.emplace_back(term.coefficient);
  return make_node(IndexOp::kMul, std::move(args));
}

IndexExpr from_terms(Terms terms) {
  std::stable_sort(terms.begin(), terms.end(), term_less);
  Terms merged;
  for (Term& term : terms) {
    if (!merged.empty() && compare(merged.back().factors, term.factors) == 0)
      merged.back().coefficient = wrap_add(merged.back().coefficient, term.coefficient);
    else
      merged.push_back(std::move(term));
  }
  std::erase_if(merged, [](const Term& term) { return term.coefficient == 0; });
  if (merged.empty()) return 0;
  if (merged.size() == 1) return from_term(merged[0]);
  std::vector<IndexExpr> args;
  args.reserve(merged.size());
  for (const Term& term : merged) args.push_back(from_term(term));
  return make_node(IndexOp::kAdd, std::move(args));
}

std::optional<Term> divide(const Term& term, const Term& divisor) {
  if (divisor.coefficient == 0 || floor_mod(term.coefficient, divisor.coefficient) != 0) return {};
  Term result{floor_divide(term.coefficient, divisor.coefficient), {}};
  auto wanted = divisor.factors.begin();
  for (const IndexExpr& factor : term.factors) {
    if (wanted != divisor.factors.end() && *wanted == factor)
      ++wanted;
    else
      result.factors.push_back(factor);
  }
  if (wanted != divisor.factors.end()) return {};
  return result;
}

std::optional<IndexExpr> divide_exact(const IndexExpr& e, const IndexExpr& divisor) {
  if (divisor.is_const(0)) return {};
  if (divisor.is_const(1)) return e;
  // Polynomial long division. Each step divides a term of the rest by the divisor's first term. The limit of the steps
  // ends divisions whose rest never gets shorter.
  const Terms by = terms_of(divisor);
  IndexExpr rest = e, quotient = 0;
  for (size_t steps = terms_of(e).size() + 1; steps > 0 && !rest.is_const(0); --steps) {
    std::optional<Term> q;
    for (const Term& term : terms_of(rest)) {
      q = divide(term, by[0]);
      if (q) break;
    }
    if (!q) return {};
    const IndexExpr part = from_term(*q);
    quotient = quotient + part;
    rest = rest - part * divisor;
  }
  if (!rest.is_const(0)) return {};
  return quotient;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) return wrap_mul(a, -1);
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

IndexExpr operator+(const IndexExpr& a, const IndexExpr& b) {
  if (a.is_const(0)) return b;
  if (b.is_const(0)) return a;
  Terms terms = terms_of(a);
  for (Term& term : terms_of(b)) terms.push_back(std::move(term));
  return from_terms(std::move(terms));
}

IndexExpr operator*(const IndexExpr& a, const IndexExpr& b) {
  if (a.is_const(1)) return b;
  if (b.is_const(1)) return a;
  if (a.is_const(0) || b.is_const(0)) return 0;
  Terms left = terms_of(a), right = terms_of(b);
  if (left.size() * right.size() > kMaxTerms) {  // Too long to expand: both sums stay factors.
    if (left.size() > 1) left = {Term{1, {a}}};
    if (right.size() > 1) right = {Term{1, {b}}};
  }
  Terms terms;
  terms.reserve(left.size() * right.size());
  for (const Term& x : left)
    for (const Term& y : right) terms.push_back(multiply(x, y));
  return from_terms(std::move(terms));
}

IndexExpr operator-(const IndexExpr& a, const IndexExpr& b) { return a + b * IndexExpr(-1); }

IndexExpr product(const std::vector<IndexExpr>& factors) {
  IndexExpr result = 1;
  for (const IndexExpr& factor : factors) result = result * factor;
  return result;
}

namespace {

/// Builds a node again from other args, so that it is folded like any new expression.
IndexExpr rebuild(IndexOp op, const std::vector<IndexExpr>& args) {
  switch (op) {
    case IndexOp::kAdd: {
      Terms terms;
      for (const IndexExpr& arg : args)
        for (Term& term : terms_of(arg)) terms.push_back(std::move(term));
      return from_terms(std::move(terms));
    }
    case IndexOp::kMul:
      return product(args);
    case IndexOp::kFloorDiv:
      return floordiv(args[0], args[1]);
    case IndexOp::kMod:
      return mod(args[0], args[1]);
    case IndexOp::kMin:
      return min(args[0], args[1]);
    default:
      return max(args[0], args[1]);
  }
}

}  // namespace

IndexExpr substitute(const IndexExpr& e, const std::map<Symbol, IndexExpr>& with) {
  if (e.is_const() || with.empty()) return e;
  if (e.op() == IndexOp::kSymbol) {
    const auto it = with.find(e.symbol());
    return it == with.end() ? e : it->second;
  }
  std::vector<IndexExpr> args;
  args.reserve(e.args().size());
  bool changed = false;
  for (const IndexExpr& arg : e.args()) {
    args.push_back(substitute(arg, with));
    changed = changed || !(args.back() == arg);
  }
  return changed ? rebuild(e.op(), args) : e;
}

int64_t evaluate(const IndexExpr& e, const std::function<int64_t(Symbol)>& value_of) {
  if (e.is_const()) return e.constant();
  if (e.op() == IndexOp::kSymbol) return value_of(e.symbol());
  int64_t value = evaluate(e.args()[0], value_of);
  for (size_t i = 1; i < e.args().size(); ++i) {
    const int64_t next = evaluate(e.args()[i], value_of);
    switch (e.op()) {
      case IndexOp::kAdd:
        value = wrap_add(value, next);
        break;
      case IndexOp::kMul:
        value = wrap_mul(value, next);
        break;
      case IndexOp::kMin:
        value = std::min(value, next);
        break;
      case IndexOp::kMax:
        value = std::max(value, next);
        break;
      default:
        if (next == 0) fail(ErrorKind::kInternal, "division by zero in " + e.str());
        value = e.op() == IndexOp::kFloorDiv ? floor_divide(value, next) : floor_mod(value, next);
    }
  }
  return value;
}

std::vector<IndexExpr> loops(size_t count) {
  std::vector<IndexExpr> result;
  for (size_t i = 0; i < count; ++i) result.push_back(IndexExpr::loop(static_cast<int>(i)));
  return result;
}

std::optional<Affine> affine_in(const IndexExpr& e, Symbol s) {
  const IndexExpr symbol = IndexExpr::symbol(s.kind, s.index);
  Terms with, without;
  for (Term& term : terms_of(e)) {
    if (std::none_of(term.factors.begin(), term.factors.end(), [&](const IndexExpr& f) { return f.uses(s); })) {
      without.push_back(std::move(term));
      continue;
    }
    auto quotient = divide(term, {1, {symbol}});
    if (!quotient ||
        std::any_of(quotient->factors.begin(), quotient->factors.end(), [&](const IndexExpr& f) { return f.uses(s); }))
      return {};
    with.push_back(std::move(*quotient));
  }
  return Affine{from_terms(std::move(with)), from_terms(std::move(without))};
}

}  // namespace ocl::ir
