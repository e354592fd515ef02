// csrc/schedule/tunable.cpp: names a problem, makes a graph of it, and lists the choices for it.
#include "csrc/schedule/tunable.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "csrc/schedule/layout.h"
#include "csrc/schedule/offer/offer.h"

namespace ocl::schedule {
namespace {

std::string size_class(const IndexExpr& size) {
  if (!size.is_const()) return "?";
  const int64_t value = size.constant();
  int64_t step = 1;
  while (value / step >= 16) step *= 2;
  return std::to_string((value + step / 2) / step * step) + (step > 1 && value % 4 != 0 ? "+" : "");
}

std::string size_classes(const ir::Shape& sizes) {
  std::string text;
  for (const IndexExpr& size : sizes) text += (text.empty() ? "" : "x") + size_class(size);
  return text;
}

/// Returns the dimensions of a strided window from the outermost to the innermost: "0231" for channels-last images. ""
/// if the strides are unknown.
std::string order_of(const ir::Graph& graph, const ir::View& view) {
  if (!graph.buffers[view.buffer].strides) return "";
  const auto window = ir::strided(graph, view);
  if (!window) return "";
  std::vector<int64_t> strides;
  for (const IndexExpr& stride : window->strides) {
    if (!stride.is_const()) return "";
    strides.push_back(stride.constant());
  }
  std::vector<size_t> order(strides.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  std::string text;
  for (const size_t d : order)
    if (!view.sizes[d].is_const(1)) text += std::to_string(d);
  return text;
}

std::string kind_name(const ir::Node& node) {
  if (node.kind == ir::NodeKind::kContract) return "gemm";
  if (node.kind == ir::NodeKind::kAttention) {
    constexpr const char* kNames[] = {"attention", "attention_query", "attention_key_value", "attention_joint_gradient"};
    return kNames[static_cast<int>(node.attention.kind)];
  }
  if (node.kind == ir::NodeKind::kFft) return "fft";
  if (node.kind == ir::NodeKind::kSort) return "sort";
  constexpr const char* kNames[] = {"conv_forward", "conv_data", "conv_weight"};
  return kNames[static_cast<int>(node.convolve.kind)];
}

std::string pair(const char* name, const std::array<int, 2>& values, int usual) {
  if (values[0] == usual && values[1] == usual) return "";
  return std::string(" ") + name + " " + std::to_string(values[0]) + "," + std::to_string(values[1]);
}

bool known(const ir::Shape& sizes) {
  return std::all_of(sizes.begin(), sizes.end(),
                     [](const IndexExpr& e) { return e.is_const() || !e.uses(ir::SymbolKind::kSize); });
}

}  // namespace

std::string problem_of(const ir::Graph& graph, const ir::Node& node, const Caps& caps) {
  std::string text = kind_name(node) + " " + size_classes(node.sizes);
  if (!node.reduce_sizes.empty()) text += "x" + size_classes(node.reduce_sizes);
  text += " of";
  for (const ir::View& view : node.operands)
    text += std::string(" ") + ir::name(graph.buffers[view.buffer].dtype) + ":" + size_classes(view.sizes) + "@" +
            order_of(graph, view);
  if (node.kind == ir::NodeKind::kConvolve) {
    const ir::ConvolveAttrs& conv = node.convolve;
    text += pair("stride", conv.stride, 1) + pair("padding", conv.padding, 0) + pair("dilation", conv.dilation, 1);
    if (conv.groups != 1) text += " groups " + std::to_string(conv.groups);
  }
  if (node.kind == ir::NodeKind::kAttention) {
    if (node.attention.causal) text += " causal";
    if (node.attention.masked) text += " masked";
    if (node.attention.blocks) text += " blocks";
    if (node.attention.cap > 0) text += " cap";
    if (node.attention.dropout > 0) text += " dropout";
  }
  if (node.reduced_precision) text += " reduced";
  text += caps.is_cpu ? " item" : " group";
  for (const KernelLevel level : {KernelLevel::k_warpgroup, KernelLevel::k_warp})
    if (caps.kernels.has(tensor_core_kernel(KernelOperation::k_gemm, level), KernelType::kFp32))
      return text + " " + name(level);
  if (caps.matrix != MatrixInstructions::kNone) text += std::string(" ") + matrix_row(caps.matrix).name;
  return text;
}

void add_tunable(std::vector<Tunable>& tunables, const ir::Graph& graph, const ir::Node& node, const std::string& problem) {
  const auto same = [&](const Tunable& t) { return t.problem == problem; };
  if (std::any_of(tunables.begin(), tunables.end(), same)) return;
  if (!known(node.sizes) || !known(node.reduce_sizes)) return;
  ir::Graph alone;
  ir::Node copy = node;
  std::map<ir::BufferId, ir::BufferId> moved;
  for (ir::View& view : copy.operands) {
    if (!known(view.sizes) || !known(view.coords)) return;
    if (const auto found = moved.find(view.buffer); found != moved.end()) {
      view.buffer = found->second;
      continue;
    }
    const ir::Buffer& from = graph.buffers[view.buffer];
    if (!known(from.sizes) || (from.strides && !known(*from.strides))) return;
    ir::Buffer input;
    input.dtype = from.dtype;
    input.sizes = from.sizes;
    input.strides = from.strides ? *from.strides : ir::contiguous_strides(from.sizes);
    input.role = ir::BufferRole::kInput;
    input.input = static_cast<int>(alone.inputs.size());
    const ir::BufferId added = alone.add_buffer(input);
    alone.inputs.push_back(added);
    moved.emplace(view.buffer, added);
    view.buffer = added;
  }
  for (ir::BufferId& buffer : copy.outputs) {
    ir::Buffer output;
    output.dtype = graph.buffers[buffer].dtype;
    output.sizes = graph.buffers[buffer].sizes;
    buffer = alone.add_buffer(output);
    alone.outputs.push_back({buffer, output.sizes, {}, 0});
  }
  alone.add_node(std::move(copy));
  tunables.push_back({problem, std::move(alone)});
}

std::vector<Candidate> candidates(const ir::Graph& alone, const Caps& caps) {
  std::vector<Candidate> offered;
  std::set<std::string> seen;
  Schedule laid_out;  // The schedule as choose_template finds it: after the layout pass.
  laid_out.graph = alone;
  choose_layout(laid_out, caps);
  const auto id = static_cast<ir::NodeId>(
      std::find_if(laid_out.graph.nodes.begin(), laid_out.graph.nodes.end(), takes_template) - laid_out.graph.nodes.begin());
  if (id == static_cast<ir::NodeId>(laid_out.graph.nodes.size())) return offered;
  for (const TemplateRow& row : template_rows()) {
    if (!row.is_for(caps) || !row.computes(laid_out.graph.nodes[id])) continue;
    const Request request{laid_out.graph, id, row.kernel, caps};
    const auto add = [&](const std::variant<Offer, Refusal>& answer, const std::string& knob) {
      const auto* offer = std::get_if<Offer>(&answer);
      if (offer && seen.insert(signature(*offer)).second) offered.push_back({offer->text(), knob});
    };
    const std::variant<Offer, Refusal> first = answer(row, request, "");
    add(first, "");
    if (const auto* offer = std::get_if<Offer>(&first))
      for (const auto& [text, knob] : turned(*offer)) add(answer(row, request, text), knob);
  }
  return offered;
}

}  // namespace ocl::schedule
