// csrc/exec/unit_check.h: whether a device's matrix units multiply right: their kernels are built and run on small random
// operands before a plan relies on them, and the results compared with sums in double.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/program.h"

namespace ocl::exec {

/// Products and convolutions; theirs of 256 columns; products of packed operands; attention; its gradients; products and
/// convolutions on the units of a warp; convolutions that leave the statistics of their channels; attention on the units of a
/// warp; its gradients; convolutions on them that leave statistics.
enum class UnitKernels {
  kTiles,
  kWide,
  kPacked,
  kAttention,
  kAttentionGradient,
  kWarps,
  kStatistics,
  kWarpAttention,
  kWarpAttentionGradient,
  kWarpStatistics
};

/// What matrix-unit kernels multiply, and the capability that allows it.
struct UnitType {
  const char* name;      // "bf16", for messages and verdicts
  bool Caps::* allowed;  // cleared where the check fails
  const char* macro;     // of the kernels: "IN_BF16 1"
  ir::DType storage;     // of the operands
  double error;          // largest, of a sum over the sum of its products' sizes
  UnitKernels kernels;
  bool Caps::* base = nullptr;    // an earlier row without which this one is not used
  bool Caps::* better = nullptr;  // an earlier row with which this one is not used
};
/// Rows: TF32, fp32 by split TF32, bf16, fp16, wide tiles, packed operands, units of a warp, attention, its gradients,
/// statistics, attention on units of a warp, its gradients, statistics there.
const std::vector<UnitType>& unit_types();

/// One launch of a kernel on random operands and what it must give.
struct UnitProduct {
  std::string file;                                        // of kernels/
  std::vector<const char*> libraries = {"unit", "wgmma"};  // of kernels/, in front of it
  std::vector<std::string> defines;                        // "TILE_M 128"
  int store_width = 2;                                     // VW
  std::vector<UnitProduct> packs;                          // launches whose results are inputs too:
  size_t packs_at = 0;                                     // behind so many of the others
  size_t packed_floats = 0;                                // results of such a launch, which are not compared by themselves
  std::vector<std::vector<unsigned char>> inputs;          // element 0 first
  int offset = 0;                                          // passed with both: where their elements begin
  std::vector<std::variant<int32_t, int64_t>> arguments;   // after the inputs
  std::array<size_t, 3> groups{1, 1, 1};
  size_t local = 128;
  std::vector<double> exact, sizes;  // of each result: the sum, the sum of its products' sizes
  std::string text() const;          // the program; the kernel is called unit_check
};
/// Kernels of a type with every order of the operands' dimensions and every tile, at sizes that fill no tile.
std::vector<UnitProduct> unit_products(const UnitType& type);
/// The same for attention: sizes are the sums of the terms' sizes, and at least 1 for the largest scores.
std::vector<UnitProduct> unit_attentions(const UnitType& type);
std::vector<UnitProduct> unit_attention_gradients(const UnitType& type);
/// Files of kernels/ in front of a kernel of attention.
std::vector<const char*> attention_libraries(bool warps);
/// Random values in [-1, 1): of few digits, which types of 16 bits hold exactly, or of all that a float has.
std::vector<float> random_values(size_t count, bool digits, uint32_t seed);
/// As they lie in memory.
std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type);
/// Whether `results` are the product's, within the error that its type allows.
bool is_right(const UnitProduct& product, const std::vector<float>& results, size_t from, double error);

/// `caps` without the unit types whose kernels do not build, do not end or give wrong results on the device; one warning each.
/// Looks only at types that the graph's contractions need. A verdict is kept in the process and in `store`.
Caps checked_units(runtime::Device& device, const runtime::BinaryStore& store, const ir::Graph& graph, Caps caps);

}  // namespace ocl::exec
