// csrc/schedule/families/case.h: check cases: launches of a kernel on random operands, made from offers, with expected
// results.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/schedule/families/reference.h"
#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {

struct CheckCase {
  using Integer = std::variant<int32_t, int64_t>;
  KernelId kernel{};
  std::string variant;               // The parameters in words: "128x64 bf16".
  std::vector<std::string> defines;  // Macros with their values, such as "TILE_M 128".
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
};

/// A kernel with one of its types.
struct CheckSubject {
  const KernelRow& row;
  KernelType type;
  MatrixInstructions matrix = MatrixInstructions::kNone;  // For kernels of the level subgroup_matrix.
  bool every = false;                                     // See check_cases.
  bool halves() const { return storage_of(type) != ir::DType::kF32; }
  bool warps() const { return row.level == KernelLevel::k_warp; }
  /// How the kernel multiplies, with tiles of 256 columns.
  TensorCoreMath math() const;
  /// Returns random values in [-1, 1). In 16-bit types, they are multiples of 1/256, which these hold exactly; in fp32 they
  /// have all digits of a float.
  std::vector<float> values(size_t count, uint32_t seed) const;
  /// Returns the values as bytes in the type of the operands.
  std::vector<unsigned char> stored(const std::vector<float>& values) const;
  /// Returns the offer for the only node of a graph on a device with three compute units, with the options of `choice`, such
  /// as "tile=128x64". The kernel's costs and sizes are not asked.
  Offer offer(ir::Graph graph, const std::string& choice) const;
};
/// Returns the values as bytes of a dtype.
std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type);
/// Returns the launch of an offer as a case. `offset`: see CheckCase. Inputs, results and `fill` are the caller's.
CheckCase case_of(const Offer& offer, int offset = 0);

/// Returns check cases of a tensor core kernel for one of its types, at sizes that are no multiples of a tile. An offset of 1
/// makes operands unaligned, so that the kernel copies them element by element. `every`: with each tile in each order of the
/// operands' dimensions; otherwise a sample in which each tile and each order occurs. InternalError if there are no cases for
/// the kernel's operation.
std::vector<CheckCase> check_cases(const KernelRow& row, KernelType type, MatrixInstructions matrix, bool every = false);
/// Returns the type for which a tensor core kernel is launched.
KernelType type_of(const TemplateLaunch& launch);
/// True if the case has the kernel and the tile of the launch, and its operands the same order of dimensions.
bool is_like(const CheckCase& check, const TemplateLaunch& launch);

}  // namespace ocl::schedule
