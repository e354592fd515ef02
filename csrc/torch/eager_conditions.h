// csrc/torch/eager_conditions.h: conditions on the sizes and floats of an eager call, which say whether a plan serves it.
#pragma once

#include <utility>
#include <vector>

#include "csrc/ir/index_expr.h"
#include "csrc/torch/eager_key.h"

namespace ocl::aten {

/// A trace that decides something by a size or a float holds for some values only. Its plan serves the calls for which all of
/// these conditions hold.
struct EagerConditions {
  std::vector<std::pair<int, int>> symbols;    // (leaf, dimension) of the size s0, s1, ... of `sizes`.
  std::vector<ir::IndexExpr> sizes;            // Each must be at least 0.
  std::vector<std::pair<int, double>> floats;  // (leaf, the value that it must have).

  bool empty() const { return sizes.empty() && floats.empty(); }
  bool hold(const EagerArguments& arguments) const;
  /// True if the leaves that they name exist and have a size or a float.
  bool fit(const EagerArguments& arguments) const;
};

}  // namespace ocl::aten
