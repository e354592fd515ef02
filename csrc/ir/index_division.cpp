// csrc/ir/index_division.cpp: builds quotients, remainders, minima and maxima in canonical form.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "csrc/ir/index_terms.h"
#include "csrc/support/error.h"

namespace ocl::ir {

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
  // min(min(x, y), x) = min(x, y). Two constants become one.
  for (const auto& [outer, inner] : {std::pair(a, b), std::pair(b, a)}) {
    if (inner.op() != op) continue;
    for (int i = 0; i < 2; ++i) {
      const IndexExpr between = outer - inner.args()[i];
      if (!between.is_const()) continue;
      return (between.constant() >= 0) == is_min ? inner : min_or_max(op, outer, inner.args()[1 - i]);
    }
  }
  return IndexExpr::order(a, b) <= 0 ? make_node(op, {a, b}) : make_node(op, {b, a});
}

}  // namespace

IndexExpr min(const IndexExpr& a, const IndexExpr& b) { return min_or_max(IndexOp::kMin, a, b); }
IndexExpr max(const IndexExpr& a, const IndexExpr& b) { return min_or_max(IndexOp::kMax, a, b); }

}  // namespace ocl::ir
