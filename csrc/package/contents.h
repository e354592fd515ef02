// csrc/package/contents.h: what a package holds, parsed and checked: methods with their graphs, and descriptions of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/cache/package_file.h"
#include "csrc/ir/graph.h"

namespace ocl::package {

/// A weight, a constant or state. Several methods may use it; several tensors may share a storage.
struct Tensor {
  std::string name;
  int64_t storage = 0, first = 0;  // `first`: the element of the storage at which the tensor begins.
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> sizes, strides;  // Strides in elements.
  bool written = false;
};

/// An argument of a method: a dense tensor, or an integer. `sizes` of an integer is one expression, which it must be equal to.
struct Argument {
  std::string name;
  bool is_tensor = true;
  ir::DType dtype = ir::DType::kF32;
  ir::Shape sizes;
};

/// A size symbol of a method: the size of dimension `dim` of an argument, or the integer argument itself if `dim` is below 0.
struct SymbolSource {
  int argument = 0, dim = 0;
};

/// Calls must make `expression` at least 0; otherwise the error has `message`.
struct Condition {
  ir::IndexExpr expression;
  std::string message;
};

/// Where an input of the graph comes from.
struct Input {
  enum class Kind : uint8_t {
    kArgument,     // Argument `number`.
    kTensor,       // Tensor `number` of the package.
    kRandomState,  // (seed, offset) of the random numbers; `number` counters are used up.
  };
  Kind kind = Kind::kArgument;
  int64_t number = 0;
};

/// Where a result of the method comes from.
struct Result {
  enum class Kind : uint8_t { kOutput, kArgument, kTensor, kInteger, kReal, kNone };
  std::string name;
  Kind kind = Kind::kOutput;
  int number = 0;         // kOutput, kArgument, kTensor.
  ir::IndexExpr integer;  // kInteger: an expression of the size symbols.
  double real = 0;        // kReal.
};

struct Method {
  std::string name;
  std::string structure;  // Of the results: "value", "tuple", "list" or "dict".
  ir::Graph graph;
  std::string graph_key;  // Hash of the graph's text.
  std::vector<Argument> arguments;
  std::vector<SymbolSource> symbols;
  std::vector<Condition> conditions;
  std::vector<Input> inputs;
  std::vector<Result> results;
};

struct Contents {
  std::vector<Tensor> tensors;  // By their id.
  std::vector<Method> methods;
};

/// Returns the number of elements from the first to the last one of a tensor. ConfigError if it is too large.
int64_t extent(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Reads everything except the contents of the tensors. ConfigError that names the file and the method if parts do not fit
/// together: a call of the model reads nothing beyond its arguments and tensors.
Contents read_contents(cache::PackageFile& file);

}  // namespace ocl::package
