// csrc/schedule/families/operands.cpp: operands as strided memory, and what an offer must prepare if they are not.
#include "csrc/schedule/families/operands.h"

#include <algorithm>
#include <numeric>

#include "csrc/schedule/offer/strides.h"

namespace ocl::schedule {

namespace {

std::vector<int> row_major(size_t rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

bool covers_buffer(const ir::Buffer& buffer, const ir::View& view) {
  bool covers = view.coords.size() == view.sizes.size();
  for (size_t d = 0; covers && d < view.coords.size(); ++d)
    covers = view.coords[d] == IndexExpr::loop(static_cast<int>(d)) && view.sizes[d] == buffer.sizes[d];
  return covers;
}

/// Adds a new dense buffer that is filled before the node. Returns it as an operand.
Operand prepared(Draft& draft, ir::DType type, const ir::Shape& sizes, const ir::Shape& strides, Preparation::How how) {
  ir::Buffer buffer;
  buffer.dtype = type;
  buffer.sizes = sizes;
  buffer.strides = strides;
  const ir::BufferId added = draft.add(std::move(buffer));
  draft.prepare(added, std::move(how));
  return {{added, 0}, strides};
}

}  // namespace

const Fit kLoadable = {[](const Draft& d) {
                         const ir::DType type = d.buffer(d.node().operands[0].buffer).dtype;
                         return type == d.buffer(d.node().operands[1].buffer).dtype &&
                                (type == ir::DType::kF32 || type == ir::DType::kF16 || type == ir::DType::kBF16);
                       },
                       [](const Draft& d) {
                         return std::string("the operands are ") + ir::name(d.buffer(d.node().operands[0].buffer).dtype) +
                                " and " + ir::name(d.buffer(d.node().operands[1].buffer).dtype) + ", not both f32, f16 or bf16";
                       }};

void define(TemplateLaunch& launch, const std::string& name, int64_t value) {
  launch.defines.emplace_back(name, std::to_string(value));
}

void define(TemplateLaunch& launch, std::initializer_list<std::pair<const char*, int64_t>> macros) {
  for (const auto& [name, value] : macros) define(launch, name, value);
}

void define_types(const Draft& draft, TemplateLaunch& launch, int vector_width) {
  const ir::DType type = draft.buffer(draft.node().operands[0].buffer).dtype;
  define(launch, "VW", vector_width);
  if (draft.caps.thread_items > 0) define(launch, "THREAD_ITEMS", draft.caps.thread_items);
  if (type == ir::DType::kF16) define(launch, "IN_HALF", 1);
  if (type == ir::DType::kBF16) define(launch, "IN_BF16", 1);
  if (type == ir::DType::kI8) {
    define(launch, "IN_INT8", 1);
    launch.defines.emplace_back("IN_T", "uchar");
  }
}

void store_along(TemplateLaunch& launch, int dimension, int width, int rank) {
  launch.stores.coords = row_major(static_cast<size_t>(rank));
  launch.stores.dim = dimension;
  launch.stores.width = width;
}

bool multiples(const Draft& draft, int of, const std::vector<IndexExpr>& sizes) {
  const ir::Ranges ranges = draft.graph.ranges();
  return std::all_of(sizes.begin(), sizes.end(), [&](const IndexExpr& e) { return ranges.known_divides(of, e); });
}

void define_alignment(Draft& draft, int chunk) {
  const auto& inputs = draft.launch().inputs;
  const bool placed = std::all_of(inputs.begin(), inputs.end(), [&](const TemplateLaunch::Input& input) {
    return draft.buffer(input.buffer).role == ir::BufferRole::kIntermediate && multiples(draft, chunk, {input.offset});
  });
  define(draft.launch(), "ALIGNED_BASES", placed);
}

void pass_image(TemplateLaunch& launch, const std::string& name, const Operand& image, bool channels) {
  launch.arg(name + "_n", image.strides[0]);
  launch.arg(name + "_h", image.strides[2]);
  launch.arg(name + "_w", image.strides[3]);
  if (channels) launch.arg(name + "_c", image.strides[1]);
}

void pass_window(TemplateLaunch& launch, const ir::ConvolveAttrs& conv) {
  launch.args({{"stride_h", conv.stride[0]}, {"stride_w", conv.stride[1]}});
  launch.args({{"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}});
  launch.args({{"dilation_h", conv.dilation[0]}, {"dilation_w", conv.dilation[1]}});
}

namespace {

/// Returns the last node before the draft's that writes the buffer, or kNone.
ir::NodeId last_writer(const Draft& draft, ir::BufferId buffer) {
  for (ir::NodeId i = draft.id; i-- > 0;)
    if (std::ranges::count(ir::writes(draft.graph.nodes[i]), buffer) > 0) return i;
  return ir::kNone;
}

}  // namespace

bool is_kept(const Draft& draft, const ir::View& view) {
  const auto is_parameter = [&](ir::BufferId id) {
    return draft.buffer(id).role == ir::BufferRole::kInput && draft.buffer(id).is_parameter;
  };
  if (!draft.keeps_parameters) return false;
  const ir::NodeId writer = last_writer(draft, view.buffer);
  if (writer == ir::kNone) return is_parameter(view.buffer);
  const std::vector<ir::BufferId> read = ir::reads(draft.graph.nodes[writer]);
  return !read.empty() && std::ranges::all_of(read, is_parameter);
}

bool is_written_by_loops(const Draft& draft, ir::BufferId buffer) {
  const ir::NodeId writer = last_writer(draft, buffer);
  return writer != ir::kNone && draft.graph.nodes[writer].kind == ir::NodeKind::kMap;
}

std::optional<Operand> strided_operand(Draft& draft, const ir::View& view, const std::vector<int>& order) {
  const ir::Buffer& buffer = draft.buffer(view.buffer);
  draft.lay_out(view.buffer, covers_buffer(buffer, view) ? order : row_major(buffer.sizes.size()));
  const auto window = ir::strided(draft.graph, draft.buffer(view.buffer), view);
  if (!window) return std::nullopt;
  // GCC 12 takes members of a temporary Operand for uninitialised here.
  std::optional<Operand> operand(std::in_place);
  operand->input = {view.buffer, window->offset};
  operand->strides = window->strides;
  return operand;
}

Operand copied_operand(Draft& draft, const ir::View& view, ir::Shape sizes, const std::vector<IndexExpr>& coords,
                       const std::vector<std::pair<IndexExpr, IndexExpr>>& inside, std::optional<ir::Shape> strides) {
  if (!strides) strides = dense_strides(sizes, row_major(sizes.size()));
  return prepared(draft, draft.buffer(view.buffer).dtype, sizes, *strides, Copy{view, coords, inside});
}

Operand dense_copy(Draft& draft, const ir::View& view, const std::vector<int>& order) {
  std::vector<IndexExpr> coords;
  for (size_t d = 0; d < view.sizes.size(); ++d) coords.push_back(IndexExpr::loop(static_cast<int>(d)));
  return copied_operand(draft, view, view.sizes, coords, {}, dense_strides(view.sizes, order));
}

Operand any_image(Draft& draft, const ir::View& view) {
  const auto in_place = strided_operand(draft, view, kChannelsLast);
  return in_place ? *in_place : dense_copy(draft, view, kChannelsLast);
}

Operand channels_last_image(Draft& draft, const ir::View& view) {
  const auto in_place = strided_operand(draft, view, kChannelsLast);
  // With one channel, the channel stride does not matter, and the kernels assume 1.
  if (in_place && (channels_contiguous(*in_place) || view.sizes[1].is_const(1))) return *in_place;
  return dense_copy(draft, view, kChannelsLast);
}

bool channels_contiguous(const Operand& operand) { return operand.strides[1].is_const(1); }

TemplateLaunch::Input zero_row(Draft& draft, const IndexExpr& count) {
  return prepared(draft, draft.buffer(draft.node().operands[0].buffer).dtype, {count}, {1}, Zeros{}).input;
}

void split_output(Draft& draft, int64_t splits, const std::vector<int>& order) {
  ir::Buffer slices;
  slices.dtype = ir::DType::kF32;
  slices.sizes = draft.node().sizes;
  slices.sizes[0] = slices.sizes[0] * splits;
  slices.strides = dense_strides(slices.sizes, order);
  draft.node().sizes = slices.sizes;
  draft.offer.splits = splits;
  draft.offer.slices = draft.add(std::move(slices));
}

void pass_matrix(TemplateLaunch& launch, const std::string& name, const Matrices& matrix) {
  launch.arg(name + "_outer", matrix.outer);
  launch.arg(name + "_inner", matrix.inner);
  launch.arg(name + "_row", matrix.row);
  launch.arg(name + "_col", matrix.col);
}

namespace {

/// The launch of a kernel that packs into a buffer with four dimensions.
TemplateLaunch pack_launch(const Draft& draft, KernelId kernel, std::string variant, int width) {
  TemplateLaunch launch;
  launch.kernel = kernel;
  launch.kind = "pack";
  launch.variant = std::move(variant);
  define_types(draft, launch, width);
  store_along(launch, 3, width);
  return launch;
}

Operand packed(Draft& draft, const ir::View& view, const ir::Shape& sizes, ir::DType type, TemplateLaunch launch) {
  return prepared(draft, type, sizes, ir::contiguous_strides(sizes), Pack{view, std::move(launch)});
}

}  // namespace

Matrices packed_panels(Draft& draft, const ir::View& view, const Matrices& matrix, const IndexExpr& inner, int width) {
  constexpr int kRun = 128;  // Rows of a work-item: 32 KB of a panel with 64 columns.
  const bool shared = matrix.outer.is_const(0) && matrix.inner.is_const(0);
  const IndexExpr count = shared ? IndexExpr(1) : view.sizes[0], K = view.sizes[1], N = view.sizes[2];
  const ir::Shape sizes = {count, ir::ceildiv(N, width), K, width};
  TemplateLaunch launch =
      pack_launch(draft, KernelId::k_pack_item, std::to_string(width) + " columns", draft.caps.vector_floats);
  define(launch, {{"TN", width}, {"K_RUN", kRun}, {"B_LAYOUT", matrix.col.is_const(1) ? 0 : matrix.row.is_const(1) ? 1 : 2}});
  launch.buffer("b", matrix.input);
  launch.args({{"N", N}, {"K", K}, {"inner", inner}});
  pass_matrix(launch, "b", matrix);
  launch.groups = {sizes[1], ir::ceildiv(K, kRun), count};
  const Operand panels = packed(draft, view, sizes, draft.buffer(view.buffer).dtype, std::move(launch));
  const IndexExpr stride = shared ? IndexExpr(0) : panels.strides[0];
  return {panels.input, stride * inner, inner.is_const(1) ? IndexExpr(0) : stride, 0, 0};
}

Blocks packed_blocks(Draft& draft, const ir::View& view, const Matrices& matrix, const IndexExpr& inner, ProductOperand role,
                     BlockForm form) {
  constexpr int kWidth = 64, kBlockFloats = 2048, kItems = 256, kStepsOfGroup = 2;
  const bool is_a = role == ProductOperand::kA;
  const bool halves = ir::size_bytes(draft.buffer(view.buffer).dtype) == 2, pairs = !halves && form == BlockForm::kPairs;
  const bool split = !halves && form == BlockForm::kSplitTf32;
  const int chunk = halves ? 8 : 4;
  const IndexExpr width = view.sizes[is_a ? 1 : 2], depth = view.sizes[is_a ? 2 : 1];
  const IndexExpr along_width = is_a ? matrix.row : matrix.col, along_depth = is_a ? matrix.col : matrix.row;
  const int major = along_depth.is_const(1) ? 1 : along_width.is_const(1) ? 0 : 2;
  const bool shared = matrix.outer.is_const(0) && matrix.inner.is_const(0);
  const IndexExpr count = shared ? IndexExpr(1) : view.sizes[0];
  const IndexExpr panels = ir::ceildiv(width, kWidth), steps = ir::ceildiv(depth, halves || pairs ? 64 : 32);
  const int floats = pairs ? 2 * kBlockFloats + kWidth : split ? 2 * kBlockFloats : kBlockFloats;

  TemplateLaunch launch = pack_launch(draft, KernelId::k_pack_group, pairs ? "pairs of f16" : "rows", 4);
  define(launch, {{"PAIRS", pairs}, {"MAJOR", major}});
  define(launch, "CHUNKED",
         (major == 1 || (major == 0 && !halves)) &&
             multiples(draft, chunk, {major == 1 ? along_width : along_depth, matrix.outer, matrix.inner}));
  define(launch, "TERMS", split || pairs ? 3 : 1);
  launch.buffer("x", matrix.input);
  launch.args({{"width", width}, {"depth", depth}, {"inner", inner}, {"outer", matrix.outer}});
  launch.args({{"inner_stride", matrix.inner}, {"along_width", along_width}, {"along_depth", along_depth}});
  const IndexExpr groups = ir::ceildiv(steps, kStepsOfGroup);
  launch.groups = {major == 1 ? groups : panels, major == 1 ? panels : groups, count};
  launch.local = {kItems, 1, 1};
  launch.stores.align(true);
  // Blocks are stored as bits, so their dtype does not matter.
  const Operand blocks = packed(draft, view, {count, panels, steps, floats}, ir::DType::kF32, std::move(launch));
  return {blocks.input, shared ? IndexExpr(0) : blocks.strides[0]};
}

}  // namespace ocl::schedule
