// csrc/ir/index_terms.h: an index expression as a polynomial: a sum of integer * product of atoms. Shared by
// index_expr.cpp, index_division.cpp and index_simplify.cpp; nobody else includes it.
#pragma once

#include <optional>
#include <vector>

#include "csrc/ir/index_expr.h"

namespace ocl::ir {

/// coefficient * product of factors. Factors are symbols, floordiv, mod, min, max, in canonical order; none: a constant. A
/// product of sums too long to expand keeps the sums as factors.
struct Term {
  int64_t coefficient = 0;
  std::vector<IndexExpr> factors;
};
using Terms = std::vector<Term>;

/// The order of factors in a term.
inline bool factor_less(const IndexExpr& a, const IndexExpr& b) { return IndexExpr::order(a, b) < 0; }

/// The terms of e, in canonical order; empty for 0.
Terms terms_of(const IndexExpr& e);
IndexExpr from_terms(Terms terms);
IndexExpr from_term(const Term& term);
/// A node as it is, without folding.
IndexExpr make_node(IndexOp op, std::vector<IndexExpr> args);
/// term / divisor, if every coefficient and factor divides.
std::optional<Term> divide(const Term& term, const Term& divisor);
/// e / divisor as a polynomial, if all terms divide. `divisor` may be a sum.
std::optional<IndexExpr> divide_exact(const IndexExpr& e, const IndexExpr& divisor);
/// Number of nodes: what `simplify` never increases.
int node_count(const IndexExpr& e);

/// Set when a coefficient did not fit 64 bits since it was last cleared; such an expression is kept modulo 2^64, and proves
/// nothing.
bool& index_overflow();

/// Floor division and mod of integers as in Python; the divisor is not 0.
int64_t floor_divide(int64_t a, int64_t b);
int64_t floor_mod(int64_t a, int64_t b);

}  // namespace ocl::ir
