// csrc/schedule/templates/conv_tensor_core.cpp: chooses tensor core kernels for convolution and its gradients.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"
#include "csrc/schedule/templates/matrix_operands.h"
#include "csrc/schedule/templates/tensor_core_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

/// Returns the image with contiguous channels whose number is a multiple of `chunk`: in place, or a copy padded with
/// zeros.
Operand chunks_of_channels(TemplateContext& context, const ir::View& x, const IndexExpr& channels, int chunk) {
  if (multiples(context, chunk, {channels})) {
    const Operand image = channels_last_operand(context, x);
    if (multiples(context, chunk, {image.strides[0], image.strides[2], image.strides[3]})) return image;
    return dense_copy(context, x, kChannelsLast);
  }
  const IndexExpr padded = ir::ceildiv(channels, chunk) * chunk, c = IndexExpr::loop(3);
  const Operand copy = copied_operand(context, x, {x.sizes[0], x.sizes[2], x.sizes[3], padded},
                                      {IndexExpr::loop(0), c, IndexExpr::loop(1), IndexExpr::loop(2)}, {{c, channels}});
  return {copy.input, {copy.strides[0], 1, copy.strides[1], copy.strides[2]}};
}

/// Chooses the number of slices of the sum over pixels. More slices fill the device, but each costs writing and adding
/// `results` elements. tiles: number of tiles of the result. Times are those of an H200; their ratios hold on other
/// devices too. The choice is the knob "splits".
int64_t choose_pixel_splits(TemplateContext& context, const TensorCoreMath& math, const TensorCoreTile& tile, int64_t tiles,
                            int64_t pixels, double results) {
  // Bytes per element of a slice: writing and reading it (8 bytes) runs at 4/7 of the rate of a copy.
  constexpr double kSliceBytes = 14;
  const Caps& caps = context.caps;
  const int64_t most = std::clamp<int64_t>(pixels / 512, 1, 256);
  const double whole = 2.0 * static_cast<double>(pixels) * tile.rows * tile.columns / (math.flops * tile.rate);
  int64_t best = 1;
  double least = 0;
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t waves = (tiles * splits + caps.units - 1) / caps.units;
    const double time = whole * static_cast<double>(waves) / static_cast<double>(splits) +
                        (splits > 1 ? kSliceBytes * results * static_cast<double>(splits) / caps.memory_bytes_per_second : 0);
    if (splits > 1 && time >= least) continue;
    least = time;
    best = splits;
  }
  return context.choices.pick("splits", {best, std::max<int64_t>(best / 2, 1), std::min(2 * best, most)});
}

double elements_of(const ir::Shape& sizes) {
  double elements = 1;
  for (const IndexExpr& size : sizes) elements *= static_cast<double>(typical(size, 64));
  return elements;
}

/// True if packing the filters saves more time than it costs. Knob "filters".
bool packs_filters(TemplateContext& context, const TensorCoreMath& math) {
  const ir::Node& node = context.graph.nodes[context.node];
  const ir::View &x = node.operands[0], &w = node.operands[1];
  // Number of elements that are each multiplied by all elements of one filter.
  const double made = elements_of(node.convolve.kind == ir::ConvolveKind::kData ? x.sizes : node.sizes);
  const double products = made * elements_of(w.sizes) / elements_of({w.sizes[0]});
  // With filters in place, the producers' work and the bandwidth of local memory limit the speed.
  const double element = 16.0 / math.chunk, in_place = 2 * products / (1.2 * math.product * context.caps.units),
               packed = in_place / (math.terms == 3 ? 1.2 : 1.4),
               memory = (elements_of(node.sizes) + elements_of(x.sizes)) * element / context.caps.memory_bytes_per_second;
  const double saved = std::max(in_place, memory) - std::max(packed, memory);
  const double moved = is_kept(context, w) ? 0 : elements_of(w.sizes) * element * (math.terms == 3 ? 3 : 2);
  if (products < static_cast<double>(kMinPackedProducts)) return false;
  std::vector<std::string> ways = {"packed", "in place"};
  // Pack only if the saving exceeds the cost of packing by one launch. Short convolutions lose time waiting for whole
  // blocks.
  if (saved <= moved / context.caps.memory_bytes_per_second + context.caps.launch_seconds) std::swap(ways[0], ways[1]);
  return ways[context.choices.pick("filters", ways)] == "packed";
}

/// Returns the filters [groups * K][R][S][C], packed in blocks as the second operand of each group's product.
TemplateLaunch::Input filter_blocks(TemplateContext& context, const Operand& filters, const IndexExpr& groups,
                                    const IndexExpr& K, int terms) {
  const IndexExpr group = IndexExpr::loop(0), d = IndexExpr::loop(1), k = IndexExpr::loop(2);
  const ir::Shape sizes = context.graph.buffers[filters.input.buffer].sizes;
  const IndexExpr S = sizes[2], C = sizes[3], depth = sizes[1] * S * C;
  ir::View view;
  view.buffer = filters.input.buffer;
  view.sizes = {groups, depth, K};
  view.coords = {group * K + k, ir::floordiv(d, S * C), ir::mod(ir::floordiv(d, C), S), ir::mod(d, C)};
  return packed_blocks(context, view, {filters.input, K * depth, 0, 1, depth}, 1, ProductOperand::kB, terms).input;
}

}  // namespace

bool choose_conv_tensor_core(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind == ir::ConvolveKind::kWeight) return false;
  const auto math = tensor_core_math(context);
  if (!math) return false;
  const bool data = node.convolve.kind == ir::ConvolveKind::kData;
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const IndexExpr groups = attrs.groups, batch = node.sizes[0], R = w.sizes[2], S = w.sizes[3];
  // Channels per group of the input (C) and of the output (K).
  const IndexExpr C = ir::floordiv(x.sizes[1], groups), K = ir::floordiv(node.sizes[1], groups);
  // Most of a tile would be empty, so another kernel is better.
  if (typical(K, 64) < 24 || typical(R * S * C, 576) < 16) return false;
  if (attrs.groups > 1 && !multiples(context, math->chunk, {C})) return false;
  // The kernel keeps coordinates in 16 bits.
  if (typical(x.sizes[2], 1) > 8000 || typical(x.sizes[3], 1) > 8000) return false;

  const Operand image = chunks_of_channels(context, x, x.sizes[1], math->chunk);
  const IndexExpr depth =
      attrs.groups > 1 ? C : ir::ceildiv(C, math->chunk) * math->chunk;  // Channels of a group in the padded image.
  const IndexExpr k = IndexExpr::loop(0), r = IndexExpr::loop(1), s = IndexExpr::loop(2), c = IndexExpr::loop(3);
  std::vector<IndexExpr> from = {k, c, r, s};
  if (data) from = {ir::floordiv(k, K) * C + c, ir::mod(k, K), r, s};
  const Operand filters = copied_operand(context, w, {node.sizes[1], R, S, depth}, from, {{c, C}});

  const IndexExpr step_h = data ? attrs.stride[0] : 1, step_w = data ? attrs.stride[1] : 1;
  const IndexExpr pixels = batch * ir::ceildiv(node.sizes[2], step_h) * ir::ceildiv(node.sizes[3], step_w);
  const int64_t phases = data ? static_cast<int64_t>(attrs.stride[0]) * attrs.stride[1] : 1;
  const TensorCoreTile tile = choose_tensor_core_tile(context, tensor_core_tiles(*math, false), typical(pixels, 50176),
                                                      typical(K, 64), attrs.groups * phases);

  launch = TemplateLaunch{};
  launch.kind = data ? "conv_data" : "conv_forward";
  use_tensor_core_tile(context, launch, *math, tile, K);
  // A step of packed filters is 8 chunks. With several phases, which each use only some of the taps, a step must not
  // contain chunks of two taps.
  const bool packed = allows_variant(context, *math, KernelOperation::k_conv_packed) &&
                      (phases == 1 || multiples(context, 8 * math->chunk, {depth})) && packs_filters(context, *math);
  if (packed) {
    define(launch, "B_PACKED", 1);
    launch.variant += ", filters packed";
  }
  define(launch, "DATA_GRADIENT", data);
  launch.buffers({{"x", image.input}, {"w", packed ? filter_blocks(context, filters, groups, K, math->terms) : filters.input}});
  define_alignment(context, launch, math->chunk);
  launch.args({{"batch", batch}, {"C", depth}, {"K", K}, {"R", R}, {"S", S}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
  pass_window(launch, attrs);
  pass_image(launch, "x", image);
  const IndexExpr tiles = ir::ceildiv(pixels, tile.rows) * ir::ceildiv(K, tile.columns);
  // Each phase of a strided data gradient has its own number of taps. So each tile gets a work-group, and the device
  // balances them.
  launch.groups = {phases > 1 ? tiles : persistent_groups(context.caps, tiles, tile, attrs.groups), groups, phases};
  launch.store_aligned = attrs.groups == 1 || multiples(context, launch.store_width, {K});
  launch.store_coords = {0, 1, 2, 3};
  launch.store_dim = 1;
  lay_out(context.graph, node.outputs[0], kChannelsLast);
  // Warp kernels have no producers that run ahead. So, if they fit, two work-groups share a compute unit and overlap
  // their work.
  const int64_t at_once = resident_groups(context.caps, tile) * (math->level == KernelLevel::k_warp ? 2 : 1);
  if (!data && allows_variant(context, *math, KernelOperation::k_conv_statistics))
    launch.statistics = {tensor_core_kernel(KernelOperation::k_conv_statistics, math->level),
                         std::nullopt,
                         pixels,
                         tile.rows,
                         tile.columns,
                         at_once};
  return true;
}

namespace {

/// Returns the tile for a weight gradient: the one that computes least outside of rows x columns. Slices fill the
/// device in any case. For warp kernels the choice is the knob "tile".
TensorCoreTile weight_tile(TemplateContext& context, const TensorCoreMath& math, int64_t rows, int64_t columns,
                           int64_t groups) {
  if (math.level == KernelLevel::k_warpgroup) return {rows <= 64 ? 64 : 128, columns <= 64 ? 64 : 128, 1.0};
  return choose_tensor_core_tile(context, tensor_core_tiles(math, false), rows, columns, groups * context.caps.units);
}

}  // namespace

bool choose_conv_weight_tensor_core(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind != ir::ConvolveKind::kWeight) return false;
  const auto math = tensor_core_math(context);
  if (!math) return false;
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  const IndexExpr groups = attrs.groups, batch = x.sizes[0], P = dy.sizes[2], Q = dy.sizes[3];
  const IndexExpr C = node.sizes[1], K = ir::floordiv(node.sizes[0], groups), R = node.sizes[2], S = node.sizes[3];
  if (!multiples(context, math->chunk, {K}) || !constants({R, S, C, K})) return false;
  if (K.constant() < 24 || typical(R * S * C, 576) < 24 || (attrs.groups > 1 && !multiples(context, math->chunk, {C})))
    return false;
  if (typical(x.sizes[2], 1) > 8000 || typical(x.sizes[3], 1) > 8000) return false;

  const IndexExpr depth =
      attrs.groups > 1 ? C : ir::ceildiv(C, math->chunk) * math->chunk;  // Channels of a group in the padded image.
  const Operand image = chunks_of_channels(context, x, x.sizes[1], math->chunk),
                gradient = chunks_of_channels(context, dy, dy.sizes[1], math->chunk);
  const bool dense = ir::simplify(gradient.strides[3] * Q, context.graph.ranges()) == gradient.strides[2] &&
                     ir::simplify(gradient.strides[2] * P, context.graph.ranges()) == gradient.strides[0];

  const int64_t rows = K.constant(), columns = typical(R * S * depth, 576), pixels = typical(batch * P * Q, 50176);
  const TensorCoreTile tile = weight_tile(context, *math, rows, columns, attrs.groups);
  const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * attrs.groups;
  const int64_t wanted =
      choose_pixel_splits(context, *math, tile, tiles, pixels, static_cast<double>(rows) * static_cast<double>(columns));
  const IndexExpr split_pixels = ir::ceildiv(ir::ceildiv(batch * P * Q, wanted), 64) * 64;
  // If sizes are known only at run time, a slice may be empty. The kernel then stores zeros.
  const int64_t splits = split_pixels.is_const() ? (pixels + split_pixels.constant() - 1) / split_pixels.constant() : wanted;

  launch = TemplateLaunch{};
  launch.kind = "conv_weight";
  const int producers = weight_producers(math->chunk, tile);
  use_tensor_core_tile(context, launch, *math, tile, C, producers);
  if (producers != 128) define(launch, "PRODUCERS", producers);
  if (splits > 1) launch.variant += " in " + std::to_string(splits) + " slices";
  define(launch, "DY_DENSE", dense);
  if (!multiples(context, math->chunk, {C})) define(launch, "STORED_C", C.constant());
  launch.buffers({{"dy", gradient.input}, {"x", image.input}});
  define_alignment(context, launch, math->chunk);
  launch.args(
      {{"batch", batch}, {"C", depth}, {"K", K}, {"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", P}, {"out_w", Q}});
  launch.args({{"R", R}, {"S", S}, {"split_pixels", split_pixels}});
  pass_window(launch, attrs);
  pass_image(launch, "dy", gradient);
  pass_image(launch, "x", image);
  launch.groups = {ir::ceildiv(R * S * depth, tile.columns) * ir::ceildiv(K, tile.rows), groups, splits};
  launch.store_coords = {0, 1, 2, 3};
  launch.store_dim = 1;
  if (splits > 1) {
    lay_out(context.graph, node.outputs[0], {0, 1, 2, 3});
    split_output(context, splits, kChannelsLast);
  } else {
    lay_out(context.graph, node.outputs[0], kChannelsLast);
  }
  return true;
}

}  // namespace ocl::schedule
