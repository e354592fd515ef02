// csrc/codegen/shared_function.h: one function in place of several whose texts differ in integers only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ocl::codegen {

/// A function that computes what several texts compute.
struct SharedFunction {
  std::vector<size_t> users;  // Positions of the texts that it replaces.
  std::string text;           // An integer that differs between the texts is the parameter size0, size1, ..., an int.
  std::vector<std::vector<int64_t>> values;  // Values of these parameters: [parameter][user].

  static std::string parameter(size_t index) { return "size" + std::to_string(index); }
};

/// Groups texts that are equal except for integers of type int, such as sizes and strides. Groups are in the order of their
/// first texts. The texts may not use these names. Lengths of arrays and lines of the preprocessor stay constant: texts that
/// differ there are not grouped.
std::vector<SharedFunction> share_functions(const std::vector<std::string>& texts);

}  // namespace ocl::codegen
