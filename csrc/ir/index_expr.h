// csrc/ir/index_expr.h: integer expressions over symbols, for sizes, strides and indices. They are immutable and cheap
// to copy. Division rounds down, and mod has the sign of the divisor, as in Python. A new expression is folded and its
// sums and products have a canonical order. `simplify` also uses the ranges of the symbols.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ocl::ir {

enum class SymbolKind : uint8_t {
  kSize,    // s0: a size of the model, which is an integer argument of the graph.
  kLoop,    // i0: a loop of the node, or a dimension of a view.
  kReduce,  // r0: a reduction loop of the node.
  kValue,   // v4: the value of op 4 of the body, used as an index.
};

struct Symbol {
  SymbolKind kind = SymbolKind::kSize;
  int index = 0;
  auto operator<=>(const Symbol&) const = default;
};

enum class IndexOp : uint8_t { kConst, kSymbol, kAdd, kMul, kFloorDiv, kMod, kMin, kMax };

class IndexExpr {
 public:
  IndexExpr(int64_t value = 0);  // NOLINT: an integer converts to an expression
  static IndexExpr symbol(SymbolKind kind, int index);
  static IndexExpr size(int index) { return symbol(SymbolKind::kSize, index); }
  static IndexExpr loop(int index) { return symbol(SymbolKind::kLoop, index); }
  static IndexExpr reduce(int index) { return symbol(SymbolKind::kReduce, index); }
  static IndexExpr value(int index) { return symbol(SymbolKind::kValue, index); }

  IndexOp op() const;
  bool is_const() const { return op() == IndexOp::kConst; }
  bool is_const(int64_t value) const { return is_const() && constant() == value; }
  int64_t constant() const;  // The value of a kConst.
  Symbol symbol() const;     // The symbol of a kSymbol.
  // kAdd and kMul have two or more, in canonical order. The other operations have two.
  const std::vector<IndexExpr>& args() const;
  bool uses(Symbol s) const;
  bool uses(SymbolKind kind) const;
  std::string str() const;  // "s0*4 + i1 // 3". parse_index reads it back.

  /// Compares the structure. Sums and products written in another order are equal, because their order is canonical.
  friend bool operator==(const IndexExpr& a, const IndexExpr& b);
  static int order(const IndexExpr& a, const IndexExpr& b);  // Total order of expressions: -1, 0 or 1.
  size_t hash() const;

  struct Node;

 private:
  friend IndexExpr make_node(IndexOp, std::vector<IndexExpr>);
  explicit IndexExpr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

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
/// Parses what str() writes. ConfigError if the text is no expression.
IndexExpr parse_index(const std::string& text);

/// Inclusive bounds of an expression, and a number that divides it.
struct Range {
  int64_t low = INT64_MIN / 4, high = INT64_MAX / 4;
  int64_t divisor = 1;
};

/// Computes bounds of expressions. The upper bound of a loop may be an expression over sizes (`i0 < s3`), so that `i0 // s3`
/// and `i0 % s3` can be simplified for symbolic sizes.
class Ranges {
 public:
  void set(Symbol s, Range range);
  /// Declares the loop 0 <= s < extent. The extent may be symbolic.
  void set_extent(Symbol s, const IndexExpr& extent);
  Range of(const IndexExpr& e) const;  // Bounds that hold always, but may be wider than needed.
  std::optional<IndexExpr> extent(Symbol s) const;
  bool known_nonnegative(const IndexExpr& e) const;
  bool known_less(const IndexExpr& a, const IndexExpr& b) const;  // True if a < b is proved for all values.
  bool known_divides(const IndexExpr& d, const IndexExpr& e) const;

 private:
  std::map<Symbol, Range> ranges_;
  std::map<Symbol, IndexExpr> extents_;
};

/// Returns an expression that is equal for all values in `ranges` and never longer. Simplifying it again changes
/// nothing. The rules are (x / n) * n + x % n = x; (x * n + r) / n = x for 0 <= r < n; (x % (a * b)) / b = (x / b) % a;
/// and nested divisions and remainders. n may be symbolic.
IndexExpr simplify(const IndexExpr& e, const Ranges& ranges);
/// Replaces the symbols that have an entry.
IndexExpr substitute(const IndexExpr& e, const std::map<Symbol, IndexExpr>& with);
/// Returns the value of e for the given values of its symbols. InternalError for a symbol without a value, or a division by
/// zero.
int64_t evaluate(const IndexExpr& e, const std::function<int64_t(Symbol)>& value_of);
/// e = rest + coefficient * s, where neither part uses s. nullopt if e is not affine in s.
struct Affine {
  IndexExpr coefficient, rest;
};
std::optional<Affine> affine_in(const IndexExpr& e, Symbol s);

}  // namespace ocl::ir
