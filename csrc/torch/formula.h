// csrc/torch/formula.h: a number that the host computes at each call of a plan, from the floats and the sizes of the call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "csrc/ir/index_expr.h"
#include "csrc/support/archive.h"

namespace ocl::aten {

/// An expression in double precision, as steps in postfix order.
class Formula {
 public:
  enum class Op : uint8_t {
    kNumber,
    kLeaf,  // The number that is a leaf of the call.
    kSize,  // An expression of the plan's size symbols.
    kAdd,
    kMul,
    kDiv,
    kPow,
    kMaximum,
    kMinimum,
    kSqrt,
    kExp,
    kLog,
    kLog2,
    kSin,
    kCos,
    kTanh,
  };

  static Formula number(double value);
  static Formula leaf(int leaf);
  static Formula size(const ir::IndexExpr& size);
  /// `name`: of a function of one or two arguments, such as "add". kInternal if there is none of the name, or if it takes
  /// another number of arguments.
  static Formula apply(const std::string& name, const std::vector<Formula>& args);

  double value(const std::function<double(int)>& leaf, const std::function<int64_t(ir::Symbol)>& symbol) const;
  /// Returns whether the steps make one number, and each leaf and each size is one of which the test is true. Steps that the
  /// cache has kept may be damaged.
  bool fits(const std::function<bool(int)>& leaf, const std::function<bool(const ir::IndexExpr&)>& size) const;

  friend void pass(Archive& archive, Formula& formula) { archive(formula.steps_); }

 private:
  struct Step {
    Op op = Op::kNumber;
    double number = 0;
    int leaf = -1;
    ir::IndexExpr size = {};
    friend void pass(Archive& archive, Step& step) { archive(step.op, step.number, step.leaf, step.size); }
  };
  std::vector<Step> steps_;
};

}  // namespace ocl::aten
