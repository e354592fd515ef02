// csrc/ir/index_expr.h: integer expressions over symbols: sizes, strides, indices. Immutable values; cheap to copy.
// Division floors and mod has the sign of the divisor, as in Python. Construction folds constants and keeps sums and
// products in a canonical order; `simplify` uses what is known of the symbols as well.
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
  kSize,    // s0: a size of the model, an integer argument of the graph
  kLoop,    // i0: a loop of the node (or a dimension of a view)
  kReduce,  // r0: a reduction loop of the node
  kValue,   // v4: the value of operation 4 of the body, used as an index
};

struct Symbol {
  SymbolKind kind = SymbolKind::kSize;
  int index = 0;
  auto operator<=>(const Symbol&) const = default;
};

enum class IndexOp : uint8_t { kConst, kSymbol, kAdd, kMul, kFloorDiv, kMod, kMin, kMax };

class IndexExpr {
 public:
  IndexExpr(int64_t value = 0);  // NOLINT: integers are expressions
  static IndexExpr symbol(SymbolKind kind, int index);
  static IndexExpr size(int index) { return symbol(SymbolKind::kSize, index); }
  static IndexExpr loop(int index) { return symbol(SymbolKind::kLoop, index); }
  static IndexExpr reduce(int index) { return symbol(SymbolKind::kReduce, index); }
  static IndexExpr value(int index) { return symbol(SymbolKind::kValue, index); }

  IndexOp op() const;
  bool is_const() const { return op() == IndexOp::kConst; }
  bool is_const(int64_t value) const { return is_const() && constant() == value; }
  int64_t constant() const;                    // value of a kConst
  Symbol symbol() const;                       // symbol of a kSymbol
  const std::vector<IndexExpr>& args() const;  // kAdd and kMul: two or more, canonical order; the others: two
  bool uses(Symbol s) const;
  bool uses(SymbolKind kind) const;
  std::string str() const;  // "s0*4 + i1 // 3"; parse_index reads it back

  /// Structural equality; canonical order makes it catch sums and products written in another order.
  friend bool operator==(const IndexExpr& a, const IndexExpr& b);
  static int order(const IndexExpr& a, const IndexExpr& b);  // total order, -1, 0, 1
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
IndexExpr product(const std::vector<IndexExpr>& factors);  // 1 when empty
/// Throws ConfigError on text that is no expression.
IndexExpr parse_index(const std::string& text);

/// What is known of a symbol: inclusive bounds and a known divisor.
struct Range {
  int64_t low = INT64_MIN / 4, high = INT64_MAX / 4;
  int64_t divisor = 1;
};

/// Bounds of expressions. Upper bounds of loops may themselves be expressions over sizes (`i0 < s3`), which lets
/// `i0 // s3` and `i0 % s3` be simplified with symbolic sizes.
class Ranges {
 public:
  void set(Symbol s, Range range);
  /// A loop 0 <= s < extent, whose extent may be symbolic.
  void set_extent(Symbol s, const IndexExpr& extent);
  Range of(const IndexExpr& e) const;  // conservative bounds
  std::optional<IndexExpr> extent(Symbol s) const;
  bool known_nonnegative(const IndexExpr& e) const;
  bool known_less(const IndexExpr& a, const IndexExpr& b) const;  // a < b for all values
  bool known_divides(const IndexExpr& d, const IndexExpr& e) const;

 private:
  std::map<Symbol, Range> ranges_;
  std::map<Symbol, IndexExpr> extents_;
};

/// Equal for all values in `ranges`, never longer; idempotent. Knows (x / n) * n + x % n = x, (x * n + r) / n = x for
/// 0 <= r < n, (x % (a * b)) / b = (x / b) % a, nested div and mod, symbolic n included.
IndexExpr simplify(const IndexExpr& e, const Ranges& ranges);
/// Replaces symbols; those without an entry stay.
IndexExpr substitute(const IndexExpr& e, const std::map<Symbol, IndexExpr>& with);
/// Value with the given symbols. Throws InternalError on a symbol without a value or a division by zero.
int64_t evaluate(const IndexExpr& e, const std::function<int64_t(Symbol)>& value_of);
/// e = rest + coefficient * s, neither using s; nullopt if e is not affine in s.
struct Affine {
  IndexExpr coefficient, rest;
};
std::optional<Affine> affine_in(const IndexExpr& e, Symbol s);

}  // namespace ocl::ir
