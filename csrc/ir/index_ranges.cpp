// csrc/ir/index_ranges.cpp: proves bounds, signs and divisors of index expressions. Bounds that are numbers come from interval
// arithmetic. Where sizes are symbolic, the Prover replaces loops by their first or last values; so it proves that i0*s1 + i1 <
// s0*s1.
#include "csrc/ir/index_ranges.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/ir/index_terms.h"

namespace ocl::ir {

namespace {

constexpr int64_t kInfinity = INT64_MAX / 4;

// Interval arithmetic that saturates at +-kInfinity.
int64_t saturate(__int128 v) { return v > kInfinity ? kInfinity : (v < -kInfinity ? -kInfinity : static_cast<int64_t>(v)); }
bool infinite(int64_t v) { return v >= kInfinity || v <= -kInfinity; }
int64_t add_bound(int64_t a, int64_t b) { return infinite(a) ? a : (infinite(b) ? b : saturate(static_cast<__int128>(a) + b)); }
int64_t multiply_bound(int64_t a, int64_t b) { return saturate(static_cast<__int128>(a) * b); }

Range multiply_ranges(const Range& a, const Range& b) {
  const int64_t corners[] = {multiply_bound(a.low, b.low), multiply_bound(a.low, b.high), multiply_bound(a.high, b.low),
                             multiply_bound(a.high, b.high)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4), 1};
}

int64_t divide_bound(int64_t a, int64_t b) { return infinite(a) ? (b > 0 ? a : -a) : floor_divide(a, b); }

Range divide_ranges(const Range& a, const Range& b) {
  if (b.low <= 0 && b.high >= 0) return {-kInfinity, kInfinity, 1};
  const int64_t corners[] = {divide_bound(a.low, b.low), divide_bound(a.low, b.high), divide_bound(a.high, b.low),
                             divide_bound(a.high, b.high)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4), 1};
}

Range mod_range(const Range& a, const Range& b) {
  if (b.low > 0) {
    const bool inside = a.low >= 0;
    return {0, std::min(infinite(b.high) ? kInfinity : b.high - 1, inside ? a.high : kInfinity), 1};
  }
  if (b.high < 0) return {infinite(b.low) ? -kInfinity : b.low + 1, 0, 1};
  return {-kInfinity, kInfinity, 1};
}

/// Returns the factors of e's terms that are not size symbols, each once.
std::vector<IndexExpr> loop_atoms(const IndexExpr& e) {
  std::vector<IndexExpr> atoms;
  for (const Term& term : terms_of(e))
    for (const IndexExpr& factor : term.factors)
      if (!(factor.op() == IndexOp::kSymbol && factor.symbol().kind == SymbolKind::kSize) &&
          std::find(atoms.begin(), atoms.end(), factor) == atoms.end())
        atoms.push_back(factor);
  return atoms;
}

/// Proves bounds by replacing loops, remainders and quotients by their own bounds, which are polynomials of the sizes.
class Prover {
 public:
  explicit Prover(const Ranges& ranges) : ranges_(ranges) {}

  /// True if e >= 0 is proved for all values.
  bool nonnegative(const IndexExpr& e, int depth = 0) const {
    if (e.is_const()) return e.constant() >= 0;
    if (ranges_.of(e).low >= 0) return true;
    if (depth > kDepth) return false;
    if (nonnegative_polynomial(e)) return true;
    for (const IndexExpr& atom : loop_atoms(e)) {
      const auto parts = split_by(e, atom);
      if (!parts) continue;
      const bool grows = nonnegative(parts->first, depth + 1);
      if (!grows && !nonnegative(parts->first * -1, depth + 1)) continue;
      const auto bound = grows ? lower(atom, depth + 1) : upper(atom, depth + 1);
      // Only the first bound is tried. A search over all would take exponential time.
      if (bound) return nonnegative(parts->first * *bound + parts->second, depth + 1);
    }
    return false;
  }

 private:
  static constexpr int kDepth = 8;

  bool positive(const IndexExpr& e, int depth) const { return nonnegative(e - 1, depth); }

  /// Replaces each size by low + t with t >= 0. Returns true if then no coefficient of the polynomial is negative, which proves
  /// e >= 0.
  bool nonnegative_polynomial(const IndexExpr& e) const {
    std::map<Symbol, IndexExpr> shift;
    const Terms terms = terms_of(e);
    for (const Term& term : terms) {
      for (const IndexExpr& factor : term.factors) {
        if (factor.op() != IndexOp::kSymbol) {
          if (ranges_.of(factor).low < 0) return false;
          continue;
        }
        const int64_t low = ranges_.of(factor).low;
        if (infinite(low)) return false;
        if (low != 0) shift.emplace(factor.symbol(), factor + low);
      }
    }
    Terms shifted;
    for (const Term& term : terms) {
      IndexExpr p = term.coefficient;
      for (const IndexExpr& factor : term.factors)
        p = p * (factor.op() == IndexOp::kSymbol ? substitute(factor, shift) : factor);
      for (Term& t : terms_of(p)) shifted.push_back(std::move(t));
    }
    const Terms merged = terms_of(from_terms(std::move(shifted)));
    return std::all_of(merged.begin(), merged.end(), [](const Term& term) { return term.coefficient >= 0; });
  }

  /// Returns a lower bound of an atom. The bound contains only sizes.
  std::optional<IndexExpr> lower(const IndexExpr& atom, int depth) const {
    if (depth > kDepth) return {};
    switch (atom.op()) {
      case IndexOp::kFloorDiv:
        if (positive(atom.args()[1], depth) && nonnegative(atom.args()[0], depth)) return IndexExpr(0);
        break;
      case IndexOp::kMod:
        if (positive(atom.args()[1], depth)) return IndexExpr(0);
        break;
      case IndexOp::kMax:
        return atom.args()[0].is_const() ? atom.args()[0] : atom.args()[1];
      default:
        break;
    }
    const int64_t low = ranges_.of(atom).low;
    if (infinite(low)) return {};
    return IndexExpr(low);
  }

  std::optional<IndexExpr> upper(const IndexExpr& atom, int depth) const {
    if (depth > kDepth) return {};
    switch (atom.op()) {
      case IndexOp::kSymbol:
        if (const auto extent = ranges_.extent(atom.symbol())) return *extent - 1;
        break;
      case IndexOp::kFloorDiv: {
        // x // n <= upper(x) // n.
        const IndexExpr& n = atom.args()[1];
        if (n.uses(SymbolKind::kLoop) || n.uses(SymbolKind::kReduce) || !positive(n, depth)) break;
        if (const auto x = upper_of_sum(atom.args()[0], depth)) {
          const IndexExpr q = floordiv(*x, n);
          if (q.op() == IndexOp::kFloorDiv) break;  // No progress: this is again a quotient.
          // If floordiv does not divide evenly, a term c // n is left. It is -1 for -n <= c < 0, and 0 for 0 <= c < n.
          Terms terms;
          for (Term& term : terms_of(q)) {
            if (term.coefficient == 1 && term.factors.size() == 1 && term.factors[0].op() == IndexOp::kFloorDiv) {
              const IndexExpr &c = term.factors[0].args()[0], &d = term.factors[0].args()[1];
              if (nonnegative(c * -1 - 1, depth + 1) && nonnegative(c + d, depth + 1)) {
                terms.push_back({-1, {}});
                continue;
              }
              if (nonnegative(c, depth + 1) && nonnegative(d - 1 - c, depth + 1)) continue;
            }
            terms.push_back(std::move(term));
          }
          return from_terms(std::move(terms));
        }
        break;
      }
      case IndexOp::kMod:
        if (positive(atom.args()[1], depth)) return atom.args()[1] - 1;
        break;
      case IndexOp::kMin:
        return atom.args()[0].is_const() ? atom.args()[1] : atom.args()[0];
      default:
        break;
    }
    const int64_t high = ranges_.of(atom).high;
    if (infinite(high)) return {};
    return IndexExpr(high);
  }

  /// Returns an upper bound of a sum. nullopt if the sign of some atom's coefficient is unknown.
  std::optional<IndexExpr> upper_of_sum(const IndexExpr& e, int depth) const {
    IndexExpr result = e;
    for (const IndexExpr& atom : loop_atoms(e)) {
      const auto parts = split_by(result, atom);
      if (!parts) return {};
      if (parts->first.is_const(0)) continue;
      const bool grows = nonnegative(parts->first, depth + 1);
      if (!grows && !nonnegative(parts->first * -1, depth + 1)) return {};
      const auto bound = grows ? upper(atom, depth + 1) : lower(atom, depth + 1);
      if (!bound) return {};
      result = parts->first * *bound + parts->second;
    }
    return result;
  }

  const Ranges& ranges_;
};

}  // namespace

void Ranges::set(Symbol s, Range range) { ranges_[s] = range; }

void Ranges::set_extent(Symbol s, const IndexExpr& extent) {
  extents_.insert_or_assign(s, extent);
  // A loop that runs has an extent of at least 1. Every size that is a factor of the extent is then at least 1 too. Not so for
  // a reduction: what is computed from its result is computed also where there was nothing to reduce.
  if (s.kind != SymbolKind::kReduce && (extent.op() == IndexOp::kSymbol || extent.op() == IndexOp::kMul)) {
    const Term term = terms_of(extent)[0];
    for (const IndexExpr& factor : term.factors) {
      if (factor.op() != IndexOp::kSymbol) continue;
      const auto it = ranges_.find(factor.symbol());
      if (it != ranges_.end() && it->second.low == 0) it->second.low = 1;
    }
  }
  const Range bounds = of(extent);
  ranges_[s] = {0, bounds.high >= kInfinity ? kInfinity : std::max<int64_t>(bounds.high - 1, 0), 1};
}

std::optional<IndexExpr> Ranges::extent(Symbol s) const {
  const auto it = extents_.find(s);
  if (it == extents_.end()) return {};
  return it->second;
}

Range Ranges::of(const IndexExpr& e) const {
  switch (e.op()) {
    case IndexOp::kConst:
      return {e.constant(), e.constant(), e.constant() == 0 ? 1 : std::abs(e.constant())};
    case IndexOp::kSymbol: {
      const auto it = ranges_.find(e.symbol());
      if (it == ranges_.end()) return {};
      return {std::max(it->second.low, -kInfinity), std::min(it->second.high, kInfinity), it->second.divisor};
    }
    case IndexOp::kAdd: {
      Range sum{0, 0, 0};
      for (const IndexExpr& arg : e.args()) {
        const Range r = of(arg);
        sum = {add_bound(sum.low, r.low), add_bound(sum.high, r.high), std::gcd(sum.divisor, r.divisor)};
      }
      return sum;
    }
    case IndexOp::kMul: {
      Range result{1, 1, 1};
      for (size_t i = 0; i < e.args().size(); ++i) {
        const Range r = of(e.args()[i]);
        const int64_t divisor = saturate(static_cast<__int128>(result.divisor) * r.divisor);
        result = multiply_ranges(result, r);
        // A square is not negative.
        if (i > 0 && e.args()[i] == e.args()[i - 1] && result.low < 0 && i == 1) result.low = 0;
        result.divisor = infinite(divisor) ? 1 : divisor;
      }
      return result;
    }
    case IndexOp::kFloorDiv: {
      Range result = divide_ranges(of(e.args()[0]), of(e.args()[1]));
      // A loop over 2 * n elements, divided by n, is at most 1, whatever n is.
      const auto loop = e.args()[0].op() == IndexOp::kSymbol ? extent(e.args()[0].symbol()) : std::nullopt;
      if (loop && !e.args()[1].is_const() && of(e.args()[1]).low >= 1)
        result.high = std::min(result.high, of(floordiv(*loop - 1, e.args()[1])).high);
      if (e.args()[1].is_const()) {
        const int64_t d = of(e.args()[0]).divisor;
        if (d % e.args()[1].constant() == 0) result.divisor = std::max<int64_t>(std::abs(d / e.args()[1].constant()), 1);
      }
      return result;
    }
    case IndexOp::kMod: {
      const Range a = of(e.args()[0]), b = of(e.args()[1]);
      Range result = mod_range(a, b);
      result.divisor = std::gcd(a.divisor, b.divisor);
      return result;
    }
    default: {
      const Range a = of(e.args()[0]), b = of(e.args()[1]);
      const bool is_min = e.op() == IndexOp::kMin;
      return {is_min ? std::min(a.low, b.low) : std::max(a.low, b.low),
              is_min ? std::min(a.high, b.high) : std::max(a.high, b.high), std::gcd(a.divisor, b.divisor)};
    }
  }
}

bool Ranges::known_nonnegative(const IndexExpr& e) const {
  const bool before = std::exchange(index_overflow(), false);
  // If a bound overflows 64 bits, nothing is proved.
  const bool proved = Prover(*this).nonnegative(e) && !index_overflow();
  index_overflow() = before;
  return proved;
}

bool Ranges::known_less(const IndexExpr& a, const IndexExpr& b) const { return known_nonnegative(b - a - 1); }

bool Ranges::known_divides(const IndexExpr& d, const IndexExpr& e) const {
  if (d.is_const()) {
    if (d.constant() == 0) return false;
    const Range r = of(e);
    if (e.is_const(0) || r.divisor % d.constant() == 0) return true;
  }
  return divide_exact(e, d).has_value();
}

}  // namespace ocl::ir
