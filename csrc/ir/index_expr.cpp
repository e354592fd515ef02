// csrc/ir/index_expr.cpp: builds index expressions in canonical form; evaluation, substitution.
// A sum is a polynomial over atoms (symbols, floordiv, mod, min, max), expanded and sorted, so that equal sums are equal trees.
#include "csrc/ir/index_expr.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "csrc/ir/index_terms.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

constexpr size_t kMaxTerms = 128;  // A product that would have more terms than this is not expanded.

Term multiply(const Term& a, const Term& b) {
  Term result{wrap_mul(a.coefficient, b.coefficient), {}};
  std::merge(a.factors.begin(), a.factors.end(), b.factors.begin(), b.factors.end(), std::back_inserter(result.factors),
             factor_less);
  return result;
}

}  // namespace

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

namespace {

/// The step that floordiv and mod share: a = divisor * whole + rest. `whole` collects the terms of a that the divisor
/// divides. Then `rest` and `divisor` lose their common factor `common`.
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
  // A divisor that is a sum may divide all of a, as in (i0*s0 + i0) // (s0 + 1).
  if (by.size() > 1) {
    if (auto q = divide_exact(d.rest, b)) return {d.whole + *q, 0, b, {1, {}}};
  }

  // Cancel the factor that all terms on both sides share: symbols, and the greatest common divisor of the coefficients.
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

/// Returns the greatest g > 1 that divides the positive constant divisor and every coefficient of e except its additive
/// constant. Returns 1 if there is none, or if e has no additive constant.
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
  return d.whole + IndexExpr::node(IndexOp::kFloorDiv, {d.rest, d.divisor});
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
  return common * IndexExpr::node(IndexOp::kMod, {d.rest, d.divisor});
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
  // min(min(x, y), x) = min(x, y). Two constants become one.
  for (const auto& [outer, inner] : {std::pair(a, b), std::pair(b, a)}) {
    if (inner.op() != op) continue;
    for (int i = 0; i < 2; ++i) {
      const IndexExpr between = outer - inner.args()[i];
      if (!between.is_const()) continue;
      return (between.constant() >= 0) == is_min ? inner : min_or_max(op, outer, inner.args()[1 - i]);
    }
  }
  return IndexExpr::order(a, b) <= 0 ? IndexExpr::node(op, {a, b}) : IndexExpr::node(op, {b, a});
}

}  // namespace

IndexExpr min(const IndexExpr& a, const IndexExpr& b) { return min_or_max(IndexOp::kMin, a, b); }
IndexExpr max(const IndexExpr& a, const IndexExpr& b) { return min_or_max(IndexOp::kMax, a, b); }

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

int64_t evaluate(const IndexExpr& e, const std::function<int64_t(Symbol)>& value_of, ZeroDivisor zero) {
  if (e.is_const()) return e.constant();
  if (e.op() == IndexOp::kSymbol) return value_of(e.symbol());
  int64_t value = evaluate(e.args()[0], value_of, zero);
  for (size_t i = 1; i < e.args().size(); ++i) {
    int64_t next = evaluate(e.args()[i], value_of, zero);
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
        if (next == 0 && zero == ZeroDivisor::kIsError) fail(ErrorKind::kInternal, "division by zero in " + e.str());
        if (next == 0) next = 1;
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
  const auto parts = split_by(e, IndexExpr::symbol(s.kind, s.index));
  if (!parts || parts->first.uses(s) || parts->second.uses(s)) return std::nullopt;
  return Affine{parts->first, parts->second};
}

std::optional<IndexExpr> digit_weight(const IndexExpr& e, Symbol s) {
  if (e == IndexExpr::symbol(s.kind, s.index)) return IndexExpr(1);
  if (e.op() == IndexOp::kMod) return digit_weight(e.args()[0], s);
  if (e.op() == IndexOp::kFloorDiv) {
    const auto weight = digit_weight(e.args()[0], s);
    if (weight) return *weight * e.args()[1];
  }
  return std::nullopt;
}

}  // namespace ocl::ir
