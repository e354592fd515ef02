// csrc/ir/index_simplify.h: simplification of an index expression.
#pragma once

#include "csrc/ir/index_ranges.h"

namespace ocl::ir {

/// Returns an expression that is equal for all values in `ranges` and never longer. Simplifying it again changes
/// nothing. The rules are (x / n) * n + x % n = x; (x * n + r) / n = x for 0 <= r < n; (x % (a * b)) / b = (x / b) % a;
/// and nested divisions and remainders. n may be symbolic.
IndexExpr simplify(const IndexExpr& e, const Ranges& ranges);

}  // namespace ocl::ir
