// csrc/checks/check_case.h: a check case: one launch of a kernel on random operands, and its expected results.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/checks/reference.h"
#include "csrc/ir/graph.h"
#include "csrc/support/kernels.h"

namespace ocl::checks {

struct CheckCase {
  using Integer = std::variant<int32_t, int64_t>;
  KernelId kernel{};
  std::vector<std::string> defines;  // Macros with their values, such as "TILE_M 128".
  int store_width = 2;               // The macro VW: elements of a vector store.
  // Launches that pack operands. They run first, and their results become inputs of this launch, in front of input number
  // `packs_at`.
  std::vector<CheckCase> packs;
  size_t packs_at = 0;
  size_t packed_floats = 0;  // If this launch packs an operand, the number of floats that it writes. They are not compared.
  int offset = 0;            // The number of elements in front of the data of each input. The launch passes it with all inputs.
  std::vector<Integer> arguments;  // Integer arguments of the kernel, after the inputs.
  std::array<size_t, 3> groups{1, 1, 1};
  size_t local = 128;
  // Computes `inputs` and `results`. Call it only if the case runs, because it takes longer than building the case.
  std::function<void(CheckCase&)> fill;
  std::vector<std::vector<unsigned char>> inputs;  // Bytes of each input, from element 0 on.
  Sums results;
  /// Returns the text of a program with the kernel checked_kernel.
  std::string text() const;
};

/// storage_of returns the dtype of a kernel type's operands in memory. macro_of returns the macro that selects the type in a
/// kernel, such as "IN_BF16 1".
ir::DType storage_of(KernelType type);
const char* macro_of(KernelType type);

/// Returns check cases of a tensor core kernel for one of its types. They cover every order of the operands' dimensions and
/// every tile, at sizes that are no multiples of a tile. InternalError if there are no cases for the kernel's operation.
std::vector<CheckCase> check_cases(const KernelRow& row, KernelType type);
std::vector<CheckCase> product_cases(const KernelRow& row, KernelType type);
/// The allowed error of a result is relative to the sum of the absolute values of its terms, and for the largest scores
/// relative to at least 1.
std::vector<CheckCase> attention_cases(const KernelRow& row, KernelType type);
std::vector<CheckCase> attention_gradient_cases(const KernelRow& row, KernelType type);

/// Returns random values in [-1, 1). If `digits` is false, they are multiples of 1/256, which 16-bit types hold exactly. If it
/// is true, they have all digits of a float.
std::vector<float> random_values(size_t count, bool digits, uint32_t seed);
/// Returns the values as bytes of the given dtype.
std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type);
/// True if `results` from index `from` on are the expected ones, within `tolerance` relative to the absolute sums of
/// the terms.
bool is_right(const CheckCase& check, const std::vector<float>& results, size_t from, double tolerance);

}  // namespace ocl::checks
