// csrc/ir/index_ranges.h: what is known of the values of symbols and index expressions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "csrc/ir/index_expr.h"

namespace ocl::ir {

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

}  // namespace ocl::ir
