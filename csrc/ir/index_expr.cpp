// csrc/ir/index_expr.cpp: construction of index expressions in canonical form, evaluation, substitution.
// A sum is a polynomial over atoms (symbols, floordiv, mod, min, max), expanded and sorted, so that equal sums are equal trees.
#include "csrc/ir/index_expr.h"

#include <algorithm>
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
  int count = 1;  // nodes of the tree
};

namespace {

constexpr size_t kMaxTerms = 128;  // a product with more terms than this stays a product

// Wrapping arithmetic that remembers that it wrapped.
int64_t wrap_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) index_overflow() = true;
  return result;
}
int64_t wrap_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) index_overflow() = true;
  return result;
}

size_t mix(size_t seed, size_t value) { return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2)); }

int compare(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (const int o = IndexExpr::order(a[i], b[i])) return o;
  return a.size() == b.size() ? 0 : (a.size() < b.size() ? -1 : 1);
}

/// Order of terms in a sum: by factors, the constant last.
bool term_less(const Term& a, const Term& b) {
  if (a.factors.empty() || b.factors.empty()) return !a.factors.empty() && b.factors.empty();
  return compare(a.factors, b.factors) < 0;
}

bool factor_less(const IndexExpr& a, const IndexExpr& b) { return IndexExpr::order(a, b) < 0; }

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
  constexpr int64_t kLow = -1, kHigh = 64;  // made once: most constants are among these
  static const auto small = [] {
    std::vector<std::shared_ptr<const Node>> nodes;
    for (int64_t v = kLow; v <= kHigh; ++v)
      nodes.push_back(std::make_shared<Node>(Node{IndexOp::kConst, v, {}, {}, mix(17, static_cast<size_t>(v)), 1}));
    return nodes;
  }();
  node_ = value >= kLow && value <= kHigh
              ? small[static_cast<size_t>(value - kLow)]
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
  // Polynomial long division. The leading term of the divisor is its first, which is its largest in the order of terms_of: any
  // fixed choice ends, because each step removes one term of the rest; the bound stops the cases that only move terms around.
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
  if (left.size() * right.size() > kMaxTerms) {  // too long to expand: the sums become factors
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

namespace {

/// What floordiv and mod share: a = divisor * whole + rest, where whole takes the terms that divide; then rest and divisor
/// without their common factor.
struct Division {
  IndexExpr whole, rest, divisor;
  Term common{1, {}};
};

Division prepare_division(const IndexExpr& a, const IndexExpr& b) {
  Division d{0, 0, b, {1, {}}};
  const Terms by = terms_of(b);
  Terms whole, rest;
  for (Term& term : terms_of(a)) {
    std::optional<Term> q;
    if (by.size() == 1) q = divide(term, by[0]);
    if (q) {
      whole.push_back(*q);
    } else if (b.is_const() && term.factors.empty()) {
      whole.push_back({floor_divide(term.coefficient, b.constant()), {}});
      rest.push_back({floor_mod(term.coefficient, b.constant()), {}});
    } else {
      rest.push_back(std::move(term));
    }
  }
  d.whole = from_terms(std::move(whole));
  d.rest = from_terms(std::move(rest));
  if (d.rest.is_const(0)) return d;
  // A sum as divisor may still divide the whole of a: (i0*s0 + i0) // (s0 + 1).
  if (by.size() > 1) {
    if (auto q = divide_exact(d.rest, b)) return {d.whole + *q, 0, b, {1, {}}};
  }

  // Common factor of all terms on both sides: symbols always; the constant's content unless only the additive constant differs.
  const Terms rest_terms = terms_of(d.rest);
  int64_t content = 0;
  for (const Term& term : by) content = std::gcd(content, term.coefficient);
  for (const Term& term : rest_terms) content = std::gcd(content, term.coefficient);
  std::vector<IndexExpr> factors = by[0].factors;
  const auto keep_common = [&](const Term& term) {
    std::vector<IndexExpr> kept;
    std::set_intersection(factors.begin(), factors.end(), term.factors.begin(), term.factors.end(), std::back_inserter(kept),
                          factor_less);
    factors = std::move(kept);
  };
  for (const Term& term : by) keep_common(term);
  for (const Term& term : rest_terms) keep_common(term);
  d.common = {content, factors};
  if (content == 1 && factors.empty()) return d;
  const auto cancel = [&](const Terms& terms) {
    Terms result;
    for (const Term& term : terms) result.push_back(*divide(term, d.common));
    return from_terms(std::move(result));
  };
  d.rest = cancel(rest_terms);
  d.divisor = cancel(by);
  return d;
}

/// The greatest g > 1 that divides the positive constant divisor and all coefficients of e but its additive constant; 1 if
/// there is none.
int64_t inner_content(const IndexExpr& e, const IndexExpr& divisor) {
  if (!divisor.is_const() || divisor.constant() <= 0) return 1;
  int64_t g = divisor.constant();
  bool has_constant = false;
  for (const Term& term : terms_of(e)) {
    if (term.factors.empty())
      has_constant = true;
    else
      g = std::gcd(g, term.coefficient);
  }
  return has_constant ? g : 1;
}

}  // namespace

IndexExpr floordiv(const IndexExpr& a, const IndexExpr& b) {
  if (b.is_const(0)) fail(ErrorKind::kInternal, "division by zero: " + a.str() + " // 0");
  if (a.is_const() && b.is_const()) return floor_divide(a.constant(), b.constant());
  if (b.is_const(1)) return a;
  Division d = prepare_division(a, b);
  if (d.rest.is_const() && d.divisor.is_const()) return d.whole + floor_divide(d.rest.constant(), d.divisor.constant());
  if (d.rest.is_const(0)) return d.whole;
  if (d.divisor.is_const(1)) return d.whole + d.rest;
  if (const int64_t g = inner_content(d.rest, d.divisor); g > 1) {  // (g*y + c) // (g*n) = (y + c//g) // n
    Terms inner;
    for (const Term& term : terms_of(d.rest)) inner.push_back({floor_divide(term.coefficient, g), term.factors});
    return d.whole + floordiv(from_terms(std::move(inner)), d.divisor.constant() / g);
  }
  if (d.rest.op() == IndexOp::kFloorDiv && d.divisor.is_const() &&
      d.divisor.constant() > 0)  // (x // n) // m = x // (n*m), m > 0
    return d.whole + floordiv(d.rest.args()[0], d.rest.args()[1] * d.divisor);
  return d.whole + make_node(IndexOp::kFloorDiv, {d.rest, d.divisor});
}

IndexExpr mod(const IndexExpr& a, const IndexExpr& b) {
  if (b.is_const(0)) fail(ErrorKind::kInternal, "division by zero: " + a.str() + " % 0");
  if (a.is_const() && b.is_const()) return floor_mod(a.constant(), b.constant());
  if (b.is_const(1) || b.is_const(-1)) return 0;
  Division d = prepare_division(a, b);
  const IndexExpr common = from_term(d.common);
  if (d.rest.is_const() && d.divisor.is_const()) return common * IndexExpr(floor_mod(d.rest.constant(), d.divisor.constant()));
  if (d.rest.is_const(0) || d.divisor.is_const(1) || d.divisor.is_const(-1)) return 0;
  if (const int64_t g = inner_content(d.rest, d.divisor); g > 1) {  // (g*y + c) % (g*n) = g * ((y + c//g) % n) + c%g
    Terms inner;
    int64_t left = 0;
    for (const Term& term : terms_of(d.rest)) {
      inner.push_back({floor_divide(term.coefficient, g), term.factors});
      if (term.factors.empty()) left = floor_mod(term.coefficient, g);
    }
    return common * (IndexExpr(g) * mod(from_terms(std::move(inner)), d.divisor.constant() / g) + left);
  }
  return common * make_node(IndexOp::kMod, {d.rest, d.divisor});
}

IndexExpr ceildiv(const IndexExpr& a, const IndexExpr& b) {
  if (b.is_const() && b.constant() > 0) return floordiv(a + (b - 1), b);
  return floordiv(a * -1, b) * -1;
}

namespace {

IndexExpr min_or_max(IndexOp op, const IndexExpr& a, const IndexExpr& b) {
  const bool is_min = op == IndexOp::kMin;
  const IndexExpr difference = a - b;
  if (difference.is_const()) return (difference.constant() <= 0) == is_min ? a : b;
  for (const auto& [outer, inner] : {std::pair(a, b), std::pair(b, a)}) {  // min(min(x, y), x) = min(x, y); constants meet
    if (inner.op() != op) continue;
    for (int i = 0; i < 2; ++i) {
      const IndexExpr between = outer - inner.args()[static_cast<size_t>(i)];
      if (!between.is_const()) continue;
      return (between.constant() >= 0) == is_min ? inner : min_or_max(op, outer, inner.args()[static_cast<size_t>(1 - i)]);
    }
  }
  return IndexExpr::order(a, b) <= 0 ? make_node(op, {a, b}) : make_node(op, {b, a});
}

}  // namespace

IndexExpr min(const IndexExpr& a, const IndexExpr& b) { return min_or_max(IndexOp::kMin, a, b); }
IndexExpr max(const IndexExpr& a, const IndexExpr& b) { return min_or_max(IndexOp::kMax, a, b); }

IndexExpr product(const std::vector<IndexExpr>& factors) {
  IndexExpr result = 1;
  for (const IndexExpr& factor : factors) result = result * factor;
  return result;
}

namespace {

/// Rebuilds a node from other args, with all folding of construction.
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
