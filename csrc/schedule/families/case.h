// csrc/schedule/families/case.h: check cases: launches of a kernel on random operands, made from offers, with expected
// results.
#pragma once

#include <array>
#include <functional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "csrc/schedule/families/reference.h"
#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {

struct CheckCase {
  using Integer = std::variant<int32_t, int64_t>;
  struct Input {
    ir::BufferId buffer = ir::kNone;   // In the graph, or of the offer. kNone: a workspace, or what `fill` adds.
    uint64_t offset = 0;               // The argument that follows the buffer.
    size_t front = 0;                  // Elements in front of the data, which the kernel must not use.
    std::vector<unsigned char> bytes;  // From element 0 on.
    std::vector<CheckCase> pack;       // Not empty: the launch that runs first and writes the input.
  };
  KernelId kernel{};
  std::string variant;               // The parameters in words: "128x64 bf16".
  std::vector<std::string> defines;  // Macros with their values, such as "TILE_M 128".
  std::vector<Choices::Knob> knobs;  // Of the offer.
  std::set<std::string> given;       // The names of the arguments, from the kernel's row.
  std::vector<Input> inputs;
  int offset = 0;                  // Elements in front of the data of each of the graph's inputs.
  std::vector<Integer> arguments;  // Integer arguments of the kernel, after the inputs.
  std::vector<Integer> last;       // Those after the outputs, which the kernel's own stores take.
  std::vector<int64_t> strides;    // Of the results. Empty: the kernel has its own stores.
  std::array<size_t, 3> groups{1, 1, 1};
  size_t local = 128;
  // Computes the bytes of inputs, and `results`. Call it only if the case runs, because it takes longer than building the case.
  std::function<void(CheckCase&)> fill;
  Sums results;
  std::vector<size_t> outputs;  // The number of floats in each output. Empty: one has all results.
  // The kernel stores this many parts of each result, for each `block` results one behind the other. Their sum is checked.
  size_t parts = 1, block = 0;
  bool integers = false;  // The results are bits, as numbers of 32 bits.
  std::vector<size_t> written() const { return outputs.empty() ? std::vector<size_t>{results.exact.size() * parts} : outputs; }
  double tolerance = 0;  // Largest error of a result, relative to its size; see kernels.def.
};

/// Which cases of a kernel are made.
enum class CaseSet : uint8_t {
  kSample,  // Each tile and each order of the operands' dimensions occurs.
  kTiles,   // Each tile, in each order of the operands' dimensions.
  // Each tile at the edges of its sizes, with every layout of the operands. Where it can be, the operands have so few digits
  // that all sums are exact, and results must be equal bit by bit.
  kEdges
};

/// A kernel with one of its types.
struct CheckSubject {
  const KernelRow& row;
  KernelType type;
  MatrixInstructions matrix = MatrixInstructions::kNone;  // For kernels of the level subgroup_matrix.
  CaseSet set = CaseSet::kSample;
  Caps caps = {};  // What offers ask of a device beside its kernels: width of vectors, registers, local memory.
  /// True for kernels of GPUs or CPUs that need no special instructions.
  bool portable() const { return !row.on_tensor_cores(); }
  bool edges() const { return set == CaseSet::kEdges; }
  bool halves() const { return storage_of(type) != ir::DType::kF32; }
  bool warps() const { return row.level == KernelLevel::k_warp; }
  /// How the kernel multiplies, with wide tiles.
  TensorCoreMath math() const;
  /// Returns random values. For int8 they are all its numbers. At edges they are multiples of 1/2 in [-2, 2]. Otherwise they
  /// are in [-1, 1): in 16-bit types multiples of 1/256, which these hold exactly; in fp32 they have all digits of a float.
  std::vector<float> values(size_t count, uint32_t seed) const;
  /// Returns the values as bytes in the type of the operands.
  std::vector<unsigned char> stored(const std::vector<float>& values) const;
  /// Returns the offer for the only node of a graph on a device with three compute units, with the options of `choice`, such
  /// as "tile=128x64". The kernel's costs and sizes are not asked.
  Offer offer(const ir::Graph& graph, const std::string& choice) const;
};
/// Returns the subject on several devices: CPUs by the width of their vectors, GPUs by the registers of a work-item.
std::vector<CheckSubject> on_devices(const CheckSubject& subject);
/// Returns the names of the tiles among which an offer chose.
std::vector<std::string> tiles_of(const Offer& offer);
/// Returns x rounded to a dtype: to nearest, ties to even.
double rounded(double x, ir::DType type);
/// Returns the bits of a number that fp16 holds.
uint16_t half_bits(double x);
/// Returns the values as bytes of a dtype, which holds them exactly.
std::vector<unsigned char> stored(const std::vector<float>& values, ir::DType type);

/// What a case computes with: the bytes of the graph's inputs, in their order, and the expected results.
struct CaseData {
  std::vector<std::vector<unsigned char>> inputs;
  Sums results;
};
/// Returns a launch of an offer for a graph as a case. What the offer prepares (copies in another order, zeros, packs) is
/// prepared from the inputs. offset: see CheckCase.
CheckCase case_of(const TemplateLaunch& launch, const Offer& offer, const ir::Graph& graph, int offset,
                  std::function<CaseData()> data);
inline CheckCase case_of(const Offer& offer, const ir::Graph& graph, int offset, std::function<CaseData()> data) {
  return case_of(offer.launch, offer, graph, offset, std::move(data));
}

/// Returns the strides of contiguous results.
std::vector<int64_t> dense(const ir::Shape& sizes);

/// Returns cases of a kernel for one of its types. An offset of 1 makes operands unaligned, so that the kernel copies them
/// element by element.
std::vector<CheckCase> check_cases(const KernelRow& row, KernelType type, MatrixInstructions matrix,
                                   CaseSet set = CaseSet::kSample);
/// Returns the type for which a tensor core kernel is launched.
KernelType type_of(const TemplateLaunch& launch);
/// True if the case has the kernel and the tile of the launch, and its operands the same order of dimensions.
bool is_like(const CheckCase& check, const TemplateLaunch& launch);

}  // namespace ocl::schedule
