// csrc/schedule/offer/template.h: the launch of a hand-written kernel (kernels/*.cl) for a node.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/kernels/kernels.h"
#include "csrc/schedule/offer/names.h"

namespace ocl::schedule {

/// How a kernel stores its results: by the macros STORE (one element) and STOREV (a vector), which codegen writes.
struct Stores {
  enum class Vectors : uint8_t {
    kAnywhere,
    kSteps,    // STOREV's coordinate along `dim` is always a multiple of the width.
    kAligned,  // Also, rows of the output are aligned to vectors, so the kernel may use STOREA.
  };
  int width = 1;  // The macro VW, the width of STOREV. 1: only STORE is used.
  Vectors vectors = Vectors::kAnywhere;
  bool prefetch = false;    // The kernel uses PREFETCHV, if the device has the instruction.
  bool plain = false;       // The kernel has a variant for epilogues that only store (PLAIN_STORES).
  int dim = 0;              // The loop of the node along which STOREV stores vectors.
  int dim1 = ir::kNone;     // The dimension of the second output along which STORE1V stores vectors. kNone: `dim`.
  std::vector<int> coords;  // The loop i* of the node for each coordinate argument of STORE, in order. gemm: {0, 1, 2}.

  void align(bool aligned) { vectors = aligned ? Vectors::kAligned : Vectors::kAnywhere; }
  bool aligned() const { return vectors == Vectors::kAligned; }
};

/// The launch of a template: macros, inputs, integer arguments and grid. It has no outputs: the epilogue macros store
/// the results of the node and its epilogue.
struct TemplateLaunch {
  KernelId kernel{};
  std::string variant;  // The parameters in words, for explain and the tuning table: "6x64 packed".
  // "gemm", "conv_forward", "conv_data", "conv_weight", "winograd", "depthwise", ...
  std::string kind;
  // Macros with their values. They include VW, the width of vector stores.
  std::vector<std::pair<std::string, std::string>> defines;
  /// An input: its buffer, and the element offset of its first element.
  struct Input {
    ir::BufferId buffer = ir::kNone;
    ir::IndexExpr offset;
    int position = 0;  // The position in the arguments of the kernel's row.
  };
  // The buffers that the kernel reads, in the order of its arguments. Each becomes a pointer and an offset.
  std::vector<Input> inputs;
  struct Int {
    ir::IndexExpr value;
    bool wide = false;  // Passed as long if true, otherwise as int.
    int position = 0;
  };
  // The integer arguments, in the order of the kernel's arguments. They follow the inputs.
  std::vector<Int> ints;
  /// These functions set arguments by the names in the kernel's row. The row defines their order and which integers are
  /// long. InternalError for an unknown name, and for one that is set twice.
  void buffers(std::initializer_list<std::pair<const char*, Input>> given);
  void buffer(const std::string& name, Input input);
  void args(std::initializer_list<std::pair<const char*, ir::IndexExpr>> given);
  void arg(const std::string& name, const ir::IndexExpr& value);
  /// The names of the arguments that were set.
  std::set<std::string> given() const;
  /// InternalError if an argument is missing that every variant of the kernel has.
  void check_arguments() const;
  std::array<ir::IndexExpr, 3> groups;  // Work-groups in each dimension.
  std::array<int, 3> local{1, 1, 1};    // Work-items of a work-group.
  Stores stores;
  /// A variant of a convolution's kernel, selected by STATISTICS 1. It also stores the statistics of each channel, in
  /// slices, by STORE1. With BIAS 1 it adds a bias, which is its last input.
  struct Statistics {
    std::optional<KernelId> kernel;  // nullopt: this launch has no such variant.
    /// The number of slices, if each work-item makes one slice. If it is nullopt, each column of tiles is cut into slices:
    /// groups[0] of the launch becomes the number of slices, which is also passed as an integer argument.
    std::optional<ir::IndexExpr> slices;
    ir::IndexExpr rows;  // Rows of the output, which are pixels.
    int tile_rows = 0, tile_columns = 0;
    int64_t groups = 0;  // Work-groups that run at the same time.
  };
  Statistics statistics;
  // Size of the workspace in f32 elements, passed as the last input. 0: there is none.
  int64_t scratch_elements = 0;
};

}  // namespace ocl::schedule
