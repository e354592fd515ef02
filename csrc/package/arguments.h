// csrc/package/arguments.h: checks the arguments of a call against the method.
#pragma once

#include <string>
#include <vector>

#include "csrc/package/contents.h"
#include "csrc/package/tensor.h"

namespace ocl::package {

/// Returns the values of the method's size symbols. ConfigError that names the method, the argument, and what was expected, if
/// an argument is missing, is on another device or has another type, or if sizes do not fit.
std::vector<int64_t> check_arguments(const Method& method, const std::vector<Value>& arguments, const runtime::Device& device);
/// Returns "[s0, 3, 224, 224]".
std::string describe_sizes(const ir::Shape& sizes);
/// Returns "f32 [s0, 3, 224, 224]" or "an integer".
std::string describe(const Argument& argument);

}  // namespace ocl::package
