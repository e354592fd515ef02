// csrc/torch/eager_conditions.h: conditions on the sizes and floats of an eager call, which say whether a plan serves it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/ir/index_expr.h"
#include "csrc/torch/eager_key.h"

namespace ocl::aten {

enum class Relation : uint8_t { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

/// A float argument and the constant that it is compared with.
struct FloatCondition {
  int leaf = -1;
  Relation relation = Relation::kEqual;
  double constant = 0;
};

/// A trace that decides something by a size or a float holds for some values only. Its plan serves the calls for which all of
/// these conditions hold.
struct EagerConditions {
  std::vector<std::pair<int, int>> symbols;  // (leaf, dimension) of the size s0, s1, ... of `sizes`.
  std::vector<ir::IndexExpr> sizes;          // Each must be at least 0.
  std::vector<FloatCondition> floats;

  bool empty() const { return sizes.empty() && floats.empty(); }
  bool hold(const EagerArguments& arguments) const;
  /// True if the leaves that they name exist and have a size or a float.
  bool fit(const EagerArguments& arguments) const;
};

}  // namespace ocl::aten
