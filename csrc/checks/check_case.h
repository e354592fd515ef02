// csrc/checks/check_case.h: one launch of a kernel on random operands, and what it must give.
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
  std::vector<std::string> defines;  // "TILE_M 128"
  int store_width = 2;               // VW
  std::vector<CheckCase> packs;      // launches whose results are inputs too:
  size_t packs_at = 0;               // behind so many of the others
  size_t packed_floats = 0;          // results of such a launch, which are not compared by themselves
  int offset = 0;                    // passed with all inputs: where their elements begin
  std::vector<Integer> arguments;    // after the inputs
  std::array<size_t, 3> groups{1, 1, 1};
  size_t local = 128;
  std::function<void(CheckCase&)> fill;            // computes what follows, which takes longer than all else
  std::vector<std::vector<unsigned char>> inputs;  // element 0 first
  Sums results;
  /// The program, whose kernel is called checked_kernel.
  std::string text() const;
};

/// The type's operands in memory, and the macro by which a kernel multiplies them: "IN_BF16 1".
ir::DType storage_of(KernelType type);
const char* macro_of(KernelType type);

/// Cases of a kernel on tensor cores for one of its types: every order of the operands' dimensions and every tile, at sizes
/// that fill no tile. InternalError if its operation has no cases.
std::vector<CheckCase> check_cases(const KernelRow& row, KernelType type);
std::vector<CheckCase> product_cases(const KernelRow& row, KernelType type);
/// Sizes are the sums of the terms' sizes, and at least 1 for the largest scores.
std::vector<CheckCase> attention_cases(const KernelRow& row, KernelType type);
std::vector<CheckCase> attention_gradient_cases(const KernelRow& row, KernelType type);

/// Random values in [-1, 1): of few digits, which types of 16 bits hold exactly, or of all that a float has.
std::vector<float> random_values(size_t count, bool digits, uint32_t seed);
/// As they lie in memory.
std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type);
/// Whether `results` are the case's, within an error relative to the sums' sizes.
bool is_right(const CheckCase& check, const std::vector<float>& results, size_t from, double tolerance);

}  // namespace ocl::checks
