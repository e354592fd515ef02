// csrc/ir/index_terms.cpp: see index_terms.h.
#include "csrc/ir/index_terms.h"

#include <algorithm>
#include <limits>

namespace ocl::ir {
namespace {

/// Compares terms in the order that they have in a sum: by factors, the constant last.
bool term_less(const Term& a, const Term& b) {
  if (a.factors.empty() || b.factors.empty()) return !a.factors.empty() && b.factors.empty();
  return IndexExpr::order(a.factors, b.factors) < 0;
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
  return IndexExpr::node(IndexOp::kMul, std::move(args));
}

IndexExpr from_terms(Terms terms) {
  std::stable_sort(terms.begin(), terms.end(), term_less);
  Terms merged;
  for (Term& term : terms) {
    if (!merged.empty() && IndexExpr::order(merged.back().factors, term.factors) == 0)
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
  return IndexExpr::node(IndexOp::kAdd, std::move(args));
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

std::optional<std::pair<IndexExpr, IndexExpr>> split_by(const IndexExpr& e, const IndexExpr& atom) {
  Terms with, without;
  for (Term& term : terms_of(e)) {
    auto quotient = divide(term, {1, {atom}});
    if (!quotient)
      without.push_back(std::move(term));
    else if (std::find(quotient->factors.begin(), quotient->factors.end(), atom) != quotient->factors.end())
      return {};
    else
      with.push_back(std::move(*quotient));
  }
  return std::pair{from_terms(std::move(with)), from_terms(std::move(without))};
}

}  // namespace ocl::ir
