// csrc/schedule/template.h: one launch of a hand-written kernel (kernels/*.cl), as chosen for a node.
#pragma once

#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/schedule/choices.h"
#include "csrc/support/caps.h"

namespace ocl::schedule {

/// The launch of a template: text parameters, inputs, integer arguments and grid. Outputs are not here: the epilogue macros
/// write what the node and its epilogue store.
struct TemplateLaunch {
  KernelId kernel{};
  std::string variant;  // for explain and the tuning table: "6x64 packed"
  std::string kind;     // "gemm", "conv_forward", "conv_data", "conv_weight", "winograd", "depthwise", ...
  std::vector<std::pair<std::string, std::string>> defines;  // macro, value; includes VW, the store vector's width
  /// An input: its buffer and element offset (the view's offset in the buffer).
  struct Input {
    ir::BufferId buffer = ir::kNone;
    ir::IndexExpr offset;
    int position = 0;  // in the row's arguments
  };
  std::vector<Input> inputs;  // each becomes (pointer, offset), in the kernel's argument order
  struct Int {
    ir::IndexExpr value;
    bool wide = false;  // passed as long, otherwise as int
    int position = 0;
  };
  std::vector<Int> ints;  // after the inputs, in the kernel's argument order
  /// Arguments by the names of the kernel's row, which says their order and which integers are long. InternalError for a name
  /// that the row does not have, and for one that is given twice.
  void buffers(std::initializer_list<std::pair<const char*, Input>> given);
  void buffer(const std::string& name, Input input);
  void args(std::initializer_list<std::pair<const char*, ir::IndexExpr>> given);
  void arg(const std::string& name, const ir::IndexExpr& value);
  /// InternalError if an argument that all forms of the kernel take is missing.
  void check_arguments() const;
  std::array<ir::IndexExpr, 3> groups;  // work-groups per dimension
  std::array<int, 3> local{1, 1, 1};    // local size
  int store_width = 1;                  // VW of STOREV; 1: only STORE is used
  bool store_steps = false;             // STOREV's coordinate along that loop is a multiple of the width
  bool store_aligned = false;           // rows of the output are aligned to vectors, so the kernel may use STOREA
  bool plain_stores = false;            // the kernel has a variant for epilogues that only store: PLAIN_STORES
  int store_dim = 0;                    // which loop of the node STOREV runs along
  int store1_dim = ir::kNone;           // which dimension of the second output STORE1V runs along; kNone: the same
  /// Which loop i* of the node each coordinate argument of STORE is, in order: gemm {0, 1, 2}.
  std::vector<int> store_coords;
  /// A variant of a convolution's kernel, chosen by STATISTICS 1, that also stores the statistics of each channel, in slices,
  /// by STORE1. With BIAS 1 it also adds a bias, its last input.
  struct Statistics {
    std::optional<KernelId> kernel;  // nullopt: there is none for this launch
    /// The number of slices, if every work-item makes one. Otherwise each column of tiles is cut into slices: groups[0] of the
    /// launch become slices, and their number is one more integer argument.
    std::optional<ir::IndexExpr> slices;
    ir::IndexExpr rows;  // rows of the output, which are pixels
    int tile_rows = 0, tile_columns = 0;
    int64_t groups = 0;  // work-groups that run at the same time
  };
  Statistics statistics;
  int64_t scratch_elements = 0;  // f32 workspace, passed as the last input (0: none)
};

/// A template chooser looks at graph.nodes[node] (a kContract, kConvolve or kAttention), and either declines (returns false) or
/// fills `launch`. It may insert helper nodes in front of the node (packing copies, filter transforms, a layout conversion of
/// an operand) and, for a split, replace the node's output by a partial buffer with a leading split dimension followed by an
/// ordinary Reduce. It works before fusion, so these helpers fuse and batch like any node. Buffers it needs in a certain layout
/// get `strides` set here. Where its cost model may be wrong (a tile, a split, a run of tiles), it offers a few alternatives to
/// `choices.pick`, its own preference first, and uses the one that is returned. So every alternative must be correct.
struct TemplateContext {
  ir::Graph& graph;
  ir::NodeId node;
  KernelId kernel;  // the kernel that is being chosen
  const Caps& caps;
  /// Adds a helper node in front of the node under choice (keeps program order).
  std::vector<ir::Node>& before;
  /// Launches of helper nodes in front, by position in `before`: for those with a kernel of their own (kPack).
  std::map<size_t, TemplateLaunch>& before_launches;
  std::vector<ir::Node>& after;
  Choices& choices;
  bool keeps_parameters = false;  // what is computed of parameters alone costs nothing from the second call on
};
using TemplateChooser = bool (*)(TemplateContext&, TemplateLaunch&);

/// A row of kernels/kernels.def that has a chooser; asked in the order of the rows, the first that accepts wins.
struct TemplateRow {
  KernelId kernel;
  TemplateChooser choose;
  const char* name() const { return kernel_row(kernel).name; }
  /// Whether the row is for the device and may be used.
  bool is_for(const Caps& caps) const {
    return caps.is_cpu == (kernel_row(kernel).level == KernelLevel::k_item) && caps.kernels.has(kernel);
  }
};
const std::vector<TemplateRow>& template_rows();

}  // namespace ocl::schedule
