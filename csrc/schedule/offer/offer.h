// csrc/schedule/offer/offer.h: what a kernel answers when it is asked for a node: an offer, or why there is none. Both
// are plain data. An offer changes nothing; apply_offer.h carries it out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/kernels/caps.h"
#include "csrc/schedule/offer/choices.h"
#include "csrc/schedule/offer/names.h"
#include "csrc/schedule/offer/template.h"

namespace ocl::schedule {

/// Element i* of a new buffer is the view's element at `coords`, or 0 if `first >= second` for some pair of `inside`.
struct Copy {
  ir::View view;
  std::vector<ir::IndexExpr> coords;
  std::vector<std::pair<ir::IndexExpr, ir::IndexExpr>> inside;
};
/// The view in another order, written by a kernel of the family pack.
struct Pack {
  ir::View view;
  TemplateLaunch launch;
};
struct Zeros {};
/// A buffer that is filled before the node runs. A node is a Map that stores into the buffer.
struct Preparation {
  using How = std::variant<Copy, Pack, Zeros, ir::Node>;
  ir::BufferId buffer = ir::kNone;
  How how;
};

/// How a kernel would compute a node.
struct Offer {
  std::string row;        // The name of the row that makes the offer. It may launch the kernel of another row.
  TemplateLaunch launch;  // Kernel, arguments by name, macros, grid.
  Choices choices;        // The tile, the number of slices and so on, each with its alternatives.
  ir::Node node;          // The node as the kernel computes it. A split along K changes its operands and sizes.
  // Buffers of the graph that had no strides, with the strides that the kernel needs.
  std::map<ir::BufferId, ir::Buffer> layouts;
  ir::BufferId first_buffer = 0;    // The graph's number of buffers, which is the number of the first new one.
  std::vector<ir::Buffer> buffers;  // New buffers.
  std::vector<Preparation> before;  // In program order.
  // If the node is computed in slices: their number and the new buffer that holds them. Their sum follows the node.
  int64_t splits = 1;
  ir::BufferId slices = ir::kNone;
  // Above 0: a product should be computed in parts of so many columns, so that only one part is packed at a time.
  int64_t part_columns = 0;
  std::string text() const { return choices.text(row); }
};

/// What is asked of a kernel.
struct Request {
  const ir::Graph& graph;
  ir::NodeId id;  // The node: kContract, kConvolve, kAttention, kFft or kSort.
  KernelId kernel;
  const Caps& caps;
  // True if the plan keeps results that depend only on parameters. They then cost nothing from the second call on.
  bool keeps_parameters = false;
};

/// An offer in the making.
///
/// Where the cost model may be wrong (a tile, a split, a run of tiles), a few alternatives go to `choices().pick`, the
/// preferred one first, and the returned one is used. So every alternative must be correct.
class Draft : public Request {
 public:
  Draft(const Request& request, Choices choices) : Request(request) {
    offer.choices = std::move(choices);
    offer.node = graph.nodes[id];
    offer.row = kernel_row(kernel).name;
    offer.first_buffer = static_cast<ir::BufferId>(graph.buffers.size());
    offer.launch.kernel = kernel;
  }
  Offer offer;
  ir::Node& node() { return offer.node; }
  const ir::Node& node() const { return offer.node; }
  TemplateLaunch& launch() { return offer.launch; }
  Choices& choices() { return offer.choices; }
  /// Returns a buffer of the graph or of the offer, with the strides that the offer gives to it.
  const ir::Buffer& buffer(ir::BufferId buffer) const;
  ir::BufferId add(ir::Buffer buffer);
  /// Fills a new buffer before the node runs.
  void prepare(ir::BufferId buffer, Preparation::How how);
  /// Gives a buffer without strides dense ones. `order` lists the dimensions from the outermost to the innermost.
  void lay_out(ir::BufferId buffer, const std::vector<int>& order);
};

/// Why a kernel does not compute a node: "K = 7 is no multiple of 8".
struct Refusal {
  KernelId kernel{};
  std::string reason;
};
/// Why a kernel does not compute a node; nullopt if it can.
using Refused = std::optional<std::string>;
/// A condition of a kernel. `reason` says what is wrong if it does not hold: "K = 7 is no multiple of 8".
struct Fit {
  bool (*holds)(const Draft&);
  std::string (*reason)(const Draft&);
};
template <size_t N>
Refused first_refusal(const Fit (&rows)[N], const Draft& draft) {
  for (const Fit& row : rows)
    if (!row.holds(draft)) return row.reason(draft);
  return std::nullopt;
}

/// True if the operation of `row` computes the node.
bool computes(const KernelRow& row, const ir::Node& node);

/// A row of kernels/kernels.def with its family's functions. Rows are asked in their order; the first that does not
/// refuse is used.
struct TemplateRow {
  KernelId kernel;
  Refused (*why_not)(const Draft&);
  void (*make)(Draft&);  // Fills the offer of a draft for which why_not returns nullopt.
  const char* name() const { return kernel_row(kernel).name; }
  /// True if the row is for this kind of device: CPUs, or all others.
  bool is_for(const Caps& caps) const { return caps.is_cpu == (kernel_row(kernel).level == KernelLevel::k_item); }
  bool computes(const ir::Node& node) const { return schedule::computes(kernel_row(kernel), node); }
};
const std::vector<TemplateRow>& template_rows();

/// Returns the answer of a row. Rows refuse that the device may not use, and nodes that have nothing to compute. wanted: the
/// text of a choice whose options are taken; "" for the cost model's.
std::variant<Offer, Refusal> answer(const TemplateRow& row, const Request& request, const std::string& wanted);

/// The dtype of a kernel type's operands in memory.
ir::DType storage_of(KernelType type);
/// Returns why the device may not use a portable kernel for the type of the node's operands; "" if it may.
std::string why_removed(const Request& request, KernelId kernel);
/// True if kernels exist for this kind of node.
bool takes_template(const ir::Node& node);
/// Returns a text that differs for any two different launches of a template.
std::string signature(const Offer& offer);
/// Returns the choices that differ from the offer in one knob, as pairs: the choice's text, and "knob=option".
std::vector<std::pair<std::string, std::string>> turned(const Offer& offer);

}  // namespace ocl::schedule
