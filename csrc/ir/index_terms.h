// csrc/ir/index_terms.h: an index expression as a polynomial, a sum of coefficient * product of atoms. Only the
// index_*.cpp files include this header.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/ir/index_tree.h"

namespace ocl::ir {

/// coefficient * product of factors. A factor is a symbol, floordiv, mod, min or max, in canonical order. A constant
/// has no factors. If a product of sums is too long to expand, its sums are factors.
struct Term {
  int64_t coefficient = 0;
  std::vector<IndexExpr> factors;
};
using Terms = std::vector<Term>;

/// Compares factors in the canonical order that they have in a term.
inline bool factor_less(const IndexExpr& a, const IndexExpr& b) { return IndexExpr::order(a, b) < 0; }

/// Returns the terms of e in canonical order; none for 0.
Terms terms_of(const IndexExpr& e);
IndexExpr from_terms(Terms terms);
IndexExpr from_term(const Term& term);
/// Returns term / divisor; nullopt if the coefficient or the factors do not divide.
std::optional<Term> divide(const Term& term, const Term& divisor);
/// Returns (coefficient, rest) of e = coefficient * atom + rest. nullopt if the atom occurs twice in a term.
std::optional<std::pair<IndexExpr, IndexExpr>> split_by(const IndexExpr& e, const IndexExpr& atom);

/// True if a coefficient did not fit 64 bits since the flag was last cleared. The expression then holds values modulo
/// 2^64, and bounds computed from it prove nothing.
bool& index_overflow();
/// Sum and product modulo 2^64. They set index_overflow() if the result does not fit.
int64_t wrap_add(int64_t a, int64_t b);
int64_t wrap_mul(int64_t a, int64_t b);

/// Return quotient (rounded down) and remainder of integers as Python does. The divisor must not be 0.
int64_t floor_divide(int64_t a, int64_t b);
int64_t floor_mod(int64_t a, int64_t b);

}  // namespace ocl::ir
