// csrc/schedule/layout.cpp: pass: gives strides to every buffer.
#include "csrc/schedule/layout.h"

#include <algorithm>
#include <numeric>

#include "csrc/ir/append.h"
#include "csrc/schedule/body.h"
#include "csrc/schedule/offer/strides.h"
#include "csrc/schedule/saved_views.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {

using ir::Buffer;
using ir::ConvolveKind;
using ir::Shape;

namespace {

/// Returns the channels-last strides of a buffer with sizes N, C, H, W.
Shape channels_last_strides(const Shape& sizes) { return dense_strides(sizes, {0, 2, 3, 1}); }

/// Returns a node that copies `view` into a new buffer with these strides. Changes `view` so that it refers to that
/// buffer.
Node copy_of_view(Graph& graph, ir::View& view, const Shape& strides, const ir::Origin& origin) {
  const ir::DType dtype = graph.buffers[view.buffer].dtype;
  Buffer buffer;
  buffer.dtype = dtype;
  buffer.sizes = view.sizes;
  buffer.strides = strides;
  Node node;
  node.kind = NodeKind::kMap;
  node.origin = origin;
  node.sizes = view.sizes;
  push_load(node.body, compute_type(dtype), view.buffer, view.coords);
  view.buffer = graph.add_buffer(buffer);
  view.coords = ir::loops(view.sizes.size());
  node.stores.push_back({view.buffer, view.coords, 0});
  return node;
}

/// Returns the numbers of a convolution's operands that are feature maps. The other operands are weights.
std::vector<int> feature_maps(const Node& node) {
  if (node.convolve.kind == ConvolveKind::kWeight) return {0, 1};
  return {0};
}

/// Returns, for each buffer, whether it becomes channels-last. These are the feature maps of convolutions, and all 4-D
/// buffers that a loop nest accesses at the same image and channel as a channels-last buffer.
std::vector<bool> channels_last_buffers(const Graph& graph) {
  std::vector<bool> chosen(graph.buffers.size(), false);
  const auto choose = [&](BufferId buffer) { chosen[buffer] = chosen[buffer] || graph.buffers[buffer].sizes.size() == 4; };
  for (const Node& node : graph.nodes) {
    if (node.kind != NodeKind::kConvolve) continue;
    for (const int operand : feature_maps(node)) choose(node.operands[operand].buffer);
    if (node.convolve.kind != ConvolveKind::kWeight) choose(node.outputs[0]);
  }
  std::vector<std::vector<Access>> per_node;
  for (const Node& node : graph.nodes) {
    std::vector<Access> list = is_loop_nest(node) ? accesses(node) : std::vector<Access>{};
    std::erase_if(list, [&](const Access& access) { return access.coords.size() != 4; });
    per_node.push_back(std::move(list));
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::vector<Access>& list : per_node)
      for (const Access& from : list)
        for (const Access& to : list) {
          if (!chosen[from.buffer] || chosen[to.buffer] || to.coords[1].is_const()) continue;
          if (!(from.coords[0] == to.coords[0]) || !(from.coords[1] == to.coords[1])) continue;
          chosen[to.buffer] = changed = true;
        }
  }
  return chosen;
}

/// Returns the dimensions by falling stride, if the strides are known; otherwise row-major.
std::vector<int> stride_order(const Buffer& buffer) {
  std::vector<int> order(buffer.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (*buffer.strides == contiguous_strides(buffer.sizes)) return order;
  if (order.size() == 4 && *buffer.strides == channels_last_strides(buffer.sizes)) return {0, 2, 3, 1};
  const bool known =
      std::all_of(buffer.strides->begin(), buffer.strides->end(), [](const IndexExpr& e) { return e.is_const(); });
  if (known)
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return (*buffer.strides)[a].constant() > (*buffer.strides)[b].constant(); });
  return order;
}

/// Returns the coordinates i0, i1, ... of a buffer's elements.
std::vector<IndexExpr> loops_of_rank(const Buffer& buffer) {
  std::vector<IndexExpr> result;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) result.push_back(IndexExpr::loop(static_cast<int>(d)));
  return result;
}

/// Returns the loops 0 .. sizes.size() - 1, ordered by falling distance between neighbouring elements in `buffer`. A
/// result that is stored in this order is read and written along rows. Row-major if the distances are unknown.
std::vector<int> walking_order(const Graph& graph, BufferId buffer, const std::vector<IndexExpr>& coords, const Shape& sizes) {
  ir::Ranges ranges = graph.ranges();
  std::vector<ir::Symbol> loops;
  for (size_t d = 0; d < sizes.size(); ++d) {
    loops.push_back(IndexExpr::loop(static_cast<int>(d)).symbol());
    ranges.set_extent(loops.back(), sizes[d]);
  }
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (!graph.buffers[buffer].strides) return order;
  std::vector<int64_t> step(sizes.size(), INT64_MAX);  // Loops that run once stay outermost.
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].is_const(1)) continue;
    const auto distance = first_step(graph, buffer, coords, loops, loops[d], ranges);
    if (!distance || *distance <= 0) return order;
    step[d] = *distance;
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return step[a] > step[b]; });
  return order;
}

/// Returns strides for the buffer of `store`. They have the order of the largest input of the same rank that is read at
/// the stored coordinates. On GPUs, if there is no such input, they have the order in which the largest input is read,
/// so that neighbouring work-items read and write neighbouring elements. GPU kernels of products take matrices in
/// either order.
Shape inherited_strides(const Graph& graph, const Node& node, const ir::Store& store, const Caps& caps) {
  const Buffer& buffer = graph.buffers[store.buffer];
  const Buffer* best = nullptr;
  double best_bytes = 0;
  for (const Access& access : accesses(node)) {
    const Buffer& input = graph.buffers[access.buffer];
    if (access.store || !input.strides || access.coords != store.index) continue;
    const double bytes = typical_bytes(graph, access.buffer);
    if (bytes > best_bytes) {
      best = &input;
      best_bytes = bytes;
    }
  }
  if (best) return dense_strides(buffer.sizes, stride_order(*best));
  const bool plain = !caps.is_cpu && node.kind == NodeKind::kMap && store.index == loops_of_rank(buffer);
  const ir::Op* main = nullptr;
  for (const ir::Op& op : node.body.ops) {
    if (op.code != ir::OpCode::kLoad || !plain) continue;
    const double bytes = typical_bytes(graph, op.buffer);
    if (bytes <= best_bytes) continue;
    main = &op;
    best_bytes = bytes;
  }
  if (!main || node.sizes != buffer.sizes) return contiguous_strides(buffer.sizes);
  return dense_strides(buffer.sizes, walking_order(graph, main->buffer, main->index, node.sizes));
}

/// Lays out the 4-D results of attention like the operand they belong to: (batch, head, row) or (batch, row, head). If
/// a model transposes [b, l, h, d] before attention, transposing the result back is then only a view.
void lay_out_attention(Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Buffer& out = graph.buffers[node.outputs[i]];
    const bool sums = node.attention.kind == ir::AttentionKind::kForward && i == 1;
    if (out.strides || sums) continue;
    const bool key_value = node.attention.kind == ir::AttentionKind::kKeyValue;
    const ir::View& model = node.operands[key_value ? i + 1 : 0];
    Buffer& buffer = graph.buffers[model.buffer];
    if (!buffer.strides) buffer.strides = contiguous_strides(buffer.sizes);
    const auto window = strided(graph, model);
    const bool rows_outside =
        window && !model.sizes[1].is_const(1) && graph.ranges().known_less(window->strides[1], window->strides[2]);
    out.strides = dense_strides(out.sizes, rows_outside ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3});
  }
}

/// Pads the rows of large matrices of products, so that each row begins at a multiple of 16 bytes. Otherwise GPUs load and
/// store them element by element, and a product must pack them first. is_free: buffers whose strides this pass chooses.
void pad_rows(Graph& graph, const std::vector<bool>& is_free) {
  constexpr int64_t kAlignment = 16, kShortestRow = 512, kSmallest = 1 << 20;
  const auto pad = [&](BufferId id) {
    Buffer& buffer = graph.buffers[id];
    const auto constant = [](const IndexExpr& e) { return e.is_const(); };
    if (!is_free[id] || !std::ranges::all_of(buffer.sizes, constant) || !std::ranges::all_of(*buffer.strides, constant)) return;
    int64_t row = 1, elements = 1;
    for (size_t d = 0; d < buffer.sizes.size(); ++d) {
      if ((*buffer.strides)[d].is_const(1) && !buffer.sizes[d].is_const(1)) row = buffer.sizes[d].constant();
      elements *= buffer.sizes[d].constant();
    }
    const int64_t bytes = size_bytes(buffer.dtype), unit = std::max<int64_t>(1, kAlignment / bytes);
    if (row % unit == 0 || row < kShortestRow || elements * bytes < kSmallest) return;
    for (IndexExpr& stride : *buffer.strides)
      if (stride.constant() % row == 0) stride = stride.constant() / row * ((row + unit - 1) / unit * unit);
  };
  for (const Node& node : graph.nodes) {
    if (node.kind != NodeKind::kContract) continue;
    pad(node.outputs[0]);
    for (const ir::View& operand : node.operands) pad(operand.buffer);
  }
}

/// Adds copies in front of `node` for operands that no kernel can read in place.
void convert_operands(Graph& graph, Node& node, std::vector<Node>& nodes, const Caps& caps) {
  if (is_loop_nest(node)) return;
  const std::vector<int> maps = node.kind == NodeKind::kConvolve ? feature_maps(node) : std::vector<int>{};
  for (size_t i = 0; i < node.operands.size(); ++i) {
    ir::View& view = node.operands[i];
    const auto window = strided(graph, view);
    if (std::find(maps.begin(), maps.end(), static_cast<int>(i)) != maps.end()) {
      // Kernels for few channels, as in the first layer, read images with any strides.
      const bool few = view.sizes[1].is_const() && view.sizes[1].constant() <= 4;
      if (window && (few || window->strides[1].is_const(1))) continue;
      nodes.push_back(copy_of_view(graph, view, channels_last_strides(view.sizes), node.origin));
    } else if (!window) {
      const bool either = node.kind == NodeKind::kContract && (!caps.is_cpu || i == 0);
      const Shape strides = either ? dense_strides(view.sizes, walking_order(graph, view.buffer, view.coords, view.sizes))
                                   : contiguous_strides(view.sizes);
      nodes.push_back(copy_of_view(graph, view, strides, node.origin));
    }
  }
}

}  // namespace

void choose_layout(Schedule& schedule, const Caps& caps) {
  Graph& graph = schedule.graph;
  const std::vector<bool> channels_last = channels_last_buffers(graph);
  std::vector<bool> is_free;
  for (const Buffer& buffer : graph.buffers) is_free.push_back(!buffer.strides);
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    Buffer& buffer = graph.buffers[b];
    if (!buffer.strides && channels_last[b]) buffer.strides = channels_last_strides(buffer.sizes);
  }
  for (const Node& node : graph.nodes) {
    if (node.kind == NodeKind::kAttention) lay_out_attention(graph, node);
    if (is_loop_nest(node))
      for (const ir::Store& store : node.stores) {
        Buffer& buffer = graph.buffers[store.buffer];
        if (!buffer.strides) buffer.strides = inherited_strides(graph, node, store, caps);
      }
  }
  for (Buffer& buffer : graph.buffers)
    if (!buffer.strides) buffer.strides = contiguous_strides(buffer.sizes);
  if (!caps.is_cpu) pad_rows(graph, is_free);
  return_saved_windows(schedule);

  for (ir::Output& output : graph.outputs) {
    if (!output.strides.empty() || output.sizes.empty()) continue;
    const Buffer& buffer = graph.buffers[output.buffer];
    output.strides = output.sizes == buffer.sizes ? *buffer.strides : ir::squeezed(*buffer.strides, buffer.sizes);
  }
  std::vector<Node> nodes;
  std::vector<ir::NodeId> from;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node node = std::move(graph.nodes[i]);
    convert_operands(graph, node, nodes, caps);
    from.resize(nodes.size(), ir::kNone);
    nodes.push_back(std::move(node));
    from.push_back(static_cast<ir::NodeId>(i));
  }
  replace_nodes(schedule, std::move(nodes), from);
}

}  // namespace ocl::schedule
