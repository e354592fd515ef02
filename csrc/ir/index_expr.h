// csrc/ir/index_expr.h: integer expressions over symbols, for sizes, strides and indices. Division rounds down, and mod has the
// sign of the divisor, as in Python. A new expression is folded and its sums and products have a canonical order.
// `simplify` (index_simplify.h) also uses the ranges of the symbols.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "csrc/ir/index_tree.h"

namespace ocl::ir {

IndexExpr operator+(const IndexExpr& a, const IndexExpr& b);
IndexExpr operator-(const IndexExpr& a, const IndexExpr& b);
IndexExpr operator*(const IndexExpr& a, const IndexExpr& b);
IndexExpr floordiv(const IndexExpr& a, const IndexExpr& b);
IndexExpr ceildiv(const IndexExpr& a, const IndexExpr& b);
IndexExpr mod(const IndexExpr& a, const IndexExpr& b);
std::vector<IndexExpr> loops(size_t count);  // i0, i1, ...
IndexExpr min(const IndexExpr& a, const IndexExpr& b);
IndexExpr max(const IndexExpr& a, const IndexExpr& b);
IndexExpr product(const std::vector<IndexExpr>& factors);  // 1 if there are no factors.
/// Returns e / divisor as a polynomial; nullopt if it is no polynomial. `divisor` may be a sum.
std::optional<IndexExpr> divide_exact(const IndexExpr& e, const IndexExpr& divisor);
/// Replaces the symbols that have an entry.
IndexExpr substitute(const IndexExpr& e, const std::map<Symbol, IndexExpr>& with);
enum class ZeroDivisor { kIsError, kCountsAsOne };
/// Returns the value of e for the given values of its symbols. InternalError for a symbol without a value, or a division by
/// zero. `zero`: what a launch is made of may be divided by a size that is 0 in one call, where no element is left to divide;
/// as 1, the divisor gives a launch that covers what else there is.
int64_t evaluate(const IndexExpr& e, const std::function<int64_t(Symbol)>& value_of, ZeroDivisor zero = ZeroDivisor::kIsError);
/// e = rest + coefficient * s, where neither part uses s. nullopt if e is not affine in s.
struct Affine {
  IndexExpr coefficient, rest;
};
std::optional<Affine> affine_in(const IndexExpr& e, Symbol s);
/// Returns the divisor c in (s // c) % m or s // c, and 1 for s % m or s. nullopt for any other expression.
std::optional<IndexExpr> digit_weight(const IndexExpr& e, Symbol s);

}  // namespace ocl::ir
