// csrc/ir/index_simplify.cpp: rewrites of index expressions that use ranges. Each is a function of one node and gives
// an expression that is equal for all values in the ranges. They are tried in the order of the code.
#include "csrc/ir/index_simplify.h"

#include <algorithm>
#include <numeric>

#include "csrc/ir/index_terms.h"

namespace ocl::ir {

namespace {

bool is_infinite(int64_t bound) { return bound >= INT64_MAX / 4 || bound <= -(INT64_MAX / 4); }

class Simplifier {
 public:
  explicit Simplifier(const Ranges& ranges) : ranges_(ranges) {}

  IndexExpr run(const IndexExpr& e) const {
    if (e.args().empty()) return single_value(e);
    std::vector<IndexExpr> args;
    args.reserve(e.args().size());
    for (const IndexExpr& arg : e.args()) args.push_back(run(arg));
    switch (e.op()) {
      case IndexOp::kAdd: {
        IndexExpr sum = 0;
        for (const IndexExpr& arg : args) sum = sum + arg;
        return add(sum);
      }
      case IndexOp::kMul:
        return product(args);
      case IndexOp::kFloorDiv:
        return divide(args[0], args[1]);
      case IndexOp::kMod:
        return modulo(args[0], args[1]);
      case IndexOp::kMin:
        if (at_most(args[0], args[1])) return args[0];
        if (at_most(args[1], args[0])) return args[1];
        return min(args[0], args[1]);
      default:
        if (at_most(args[0], args[1])) return args[1];
        if (at_most(args[1], args[0])) return args[0];
        return max(args[0], args[1]);
    }
  }

 private:
  bool at_most(const IndexExpr& a, const IndexExpr& b) const { return ranges_.known_nonnegative(b - a); }
  bool positive(const IndexExpr& e) const { return ranges_.known_nonnegative(e - 1); }
  bool inside(const IndexExpr& e, const IndexExpr& end) const {
    return ranges_.known_nonnegative(e) && ranges_.known_less(e, end);
  }

  /// Replaces a symbol that can have only one value by that value.
  IndexExpr single_value(const IndexExpr& e) const {
    if (e.is_const()) return e;
    const Range r = ranges_.of(e);
    return r.low == r.high ? IndexExpr(r.low) : e;
  }

  // ---- division ----

  /// Splits a = g*y + r with 0 <= r < g and b = g*d. The candidates for g are b and the loop-free part of each term of
  /// a, in the order of the terms.
  struct Split {
    IndexExpr y, d, r, g;
  };
  std::optional<Split> split(const IndexExpr& a, const IndexExpr& b) const {
    const Terms terms = terms_of(a);
    std::vector<IndexExpr> candidates = {b};
    for (const Term& term : terms) {
      Term size{term.coefficient, {}};  // The factors of the term that are no loops or values.
      for (const IndexExpr& factor : term.factors)
        if (!factor.uses(SymbolKind::kLoop) && !factor.uses(SymbolKind::kReduce) && !factor.uses(SymbolKind::kValue))
          size.factors.push_back(factor);
      if (size.coefficient < 0) size.coefficient = -size.coefficient;
      if (size.factors.empty() && b.is_const()) size.coefficient = std::gcd(size.coefficient, b.constant());
      const IndexExpr g = from_term(size);
      if (!g.is_const(1) && !g.is_const(0) && std::find(candidates.begin(), candidates.end(), g) == candidates.end())
        candidates.push_back(g);
    }
    for (const IndexExpr& g : candidates) {
      const auto d = divide_exact(b, g);
      if (!d || !positive(g) || !positive(*d)) continue;
      const Terms by = terms_of(g);
      Terms y, r;
      for (const Term& term : terms) {
        auto q = by.size() == 1 ? ir::divide(term, by[0]) : std::nullopt;
        if (!q && g.is_const() && term.factors.size() >= 1 && ranges_.known_divides(g, from_term(term))) {
          y.push_back({1, {floordiv(from_term(term), g)}});
          continue;
        }
        if (q)
          y.push_back(std::move(*q));
        else
          r.push_back(term);
      }
      if (y.empty() && !(g == b)) continue;
      const IndexExpr rest = from_terms(std::move(r));
      if (!(g == b) && rest.is_const(0)) continue;
      if (inside(rest, g)) return Split{sum_of(y), *d, rest, g};
    }
    return {};
  }

  /// Returns the sum of the terms. Their factors need not be atoms.
  static IndexExpr sum_of(const Terms& terms) {
    IndexExpr sum = 0;
    for (const Term& term : terms) sum = sum + IndexExpr(term.coefficient) * product(term.factors);
    return sum;
  }

  IndexExpr divide(const IndexExpr& a, const IndexExpr& b) const {
    const IndexExpr e = floordiv(a, b);
    if (e.op() != IndexOp::kFloorDiv) {
      if (e.op() != IndexOp::kAdd) return e;
      IndexExpr sum = 0;  // Sum of the parts that are already divided, and of the quotient that is left.
      for (const IndexExpr& arg : e.args())
        sum = sum + (arg.op() == IndexOp::kFloorDiv ? divide_rest(arg.args()[0], arg.args()[1]) : arg);
      return sum;
    }
    return divide_rest(e.args()[0], e.args()[1]);
  }

  IndexExpr divide_rest(const IndexExpr& x, const IndexExpr& n) const {
    if (n.is_const()) {
      const Range r = ranges_.of(x);
      if (!is_infinite(r.low) && !is_infinite(r.high) &&
          floor_divide(r.low, n.constant()) == floor_divide(r.high, n.constant()))
        return floor_divide(r.low, n.constant());
    }
    if (const auto s = split(x, n)) return s->d.is_const(1) ? s->y : divide(s->y, s->d);  // (g*y + r) // (g*d) = y // d
    if (inside(x + n, n)) return -1;
    if (x.op() == IndexOp::kFloorDiv && positive(n)) return divide(x.args()[0], x.args()[1] * n);  // (x // m) // n = x // (m*n)
    if (x.op() == IndexOp::kMod) {  // (x % (n*d)) // n = (x // n) % d
      const auto d = divide_exact(x.args()[1], n);
      if (d && positive(*d)) return modulo(divide(x.args()[0], n), *d);
    }
    return floordiv(x, n);
  }

  IndexExpr modulo(const IndexExpr& a, const IndexExpr& b) const {
    IndexExpr e = mod(a, b);
    Term outer{1, {}};
    IndexExpr added = 0;
    if (e.op() == IndexOp::kAdd && terms_of(e).size() == 2 && terms_of(e)[1].factors.empty()) {  // g * (y % n) + c
      added = terms_of(e)[1].coefficient;
      e = e - added;
    }
    if (e.op() == IndexOp::kMul) {  // common * (rest % divisor)
      const Term term = terms_of(e)[0];
      for (size_t i = 0; i < term.factors.size(); ++i) {
        if (term.factors[i].op() != IndexOp::kMod) continue;
        outer = term;
        outer.factors.erase(outer.factors.begin() + static_cast<std::ptrdiff_t>(i));
        e = term.factors[i];
        break;
      }
    }
    if (e.op() != IndexOp::kMod) return from_term(outer) * e + added;
    return from_term(outer) * modulo_rest(e.args()[0], e.args()[1]) + added;
  }

  IndexExpr modulo_rest(const IndexExpr& x, const IndexExpr& n) const {
    if (n.is_const()) {
      const Range r = ranges_.of(x);
      if (!is_infinite(r.low) && !is_infinite(r.high) &&
          floor_divide(r.low, n.constant()) == floor_divide(r.high, n.constant()))
        return x - IndexExpr(floor_divide(r.low, n.constant())) * n;
      if (r.divisor % n.constant() == 0) return 0;
    }
    Terms kept;  // (y % m + z) % n = (y + z) % n if n divides m
    bool unwrapped = false;
    for (Term& term : terms_of(x)) {
      for (IndexExpr& factor : term.factors) {
        if (factor.op() != IndexOp::kMod) continue;
        Term others = term;
        others.factors.erase(others.factors.begin() + (&factor - term.factors.data()));
        if (!ranges_.known_divides(n, from_term(others) * factor.args()[1])) continue;
        factor = factor.args()[0];
        unwrapped = true;
        break;
      }
      kept.push_back(std::move(term));
    }
    if (unwrapped) return modulo(sum_of(kept), n);
    if (const auto s = split(x, n)) {  // (g*y + r) % (g*d) = g * (y % d) + r
      if (s->d.is_const(1)) return s->r;
      return add(s->g * modulo(s->y, s->d) + s->r);
    }
    if (inside(x + n, n)) return x + n;
    return mod(x, n);
  }

  // ---- sums ----

  /// Applies k*(x % n) + k*n*(x // n) = k*x, and k*(x % n) + k*n*((x // n) % m) = k*(x % (n*m)).
  IndexExpr add(IndexExpr e) const {
    for (bool changed = true; changed;) {
      changed = false;
      const Terms terms = terms_of(e);
      for (const Term& term : terms) {
        for (size_t i = 0; i < term.factors.size() && !changed; ++i) {
          if (term.factors[i].op() != IndexOp::kMod) continue;
          Term others = term;
          others.factors.erase(others.factors.begin() + static_cast<std::ptrdiff_t>(i));
          const IndexExpr k = from_term(others), x = term.factors[i].args()[0], n = term.factors[i].args()[1];
          const IndexExpr quotient = divide(x, n);
          const IndexExpr whole = e - k * term.factors[i] - k * n * quotient + k * x;
          if (whole.node_count() < e.node_count()) {
            e = whole;
            changed = true;
            break;
          }
          for (const Term& other : terms) {
            for (const IndexExpr& f : other.factors) {
              if (f.op() != IndexOp::kMod || !(f.args()[0] == quotient) || !positive(f.args()[1])) continue;
              const IndexExpr merged = e - k * term.factors[i] - k * n * f + k * modulo(x, n * f.args()[1]);
              if (merged.node_count() >= e.node_count()) continue;
              e = merged;
              changed = true;
              break;
            }
            if (changed) break;
          }
        }
        if (changed) break;
      }
    }
    return e;
  }

  const Ranges& ranges_;
};

}  // namespace

IndexExpr simplify(const IndexExpr& e, const Ranges& ranges) {
  if (e.is_const()) return e;
  IndexExpr best = e;
  IndexExpr current = e;
  for (int round = 0; round < 8; ++round) {
    const IndexExpr next = Simplifier(ranges).run(current);
    if (next.node_count() <= best.node_count()) best = next;
    if (next == current) break;
    current = next;
  }
  return best;
}

}  // namespace ocl::ir
