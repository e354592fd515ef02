// csrc/codegen/instructions.h: functions of base/ops.cl that a device computes by instructions OpenCL C has no name for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/codegen/dialect.h"
#include "csrc/codegen/expr.h"

namespace ocl::codegen {

// Its instruction has a relative error of 2^-11, a quarter of the rounding error of bf16.
constexpr const char* kShortTanh = "op_short_tanh";

struct Replacement {
  const char* helper;    // A function that `function` calls. A kernel has it once.
  std::string function;  // The text of the function for one type.
};

/// Returns what replaces a function, such as "op_round_bf16", for this type; none if the device has no instruction for it.
std::optional<Replacement> by_instructions(const std::string& function, Type type, const Dialect& dialect);

/// Returns the text of a function `name` of vectors that calls the function `scalar` once for each lane.
std::string by_lane(const std::string& name, const std::string& scalar, Type type, const std::vector<std::string>& arguments);

}  // namespace ocl::codegen
