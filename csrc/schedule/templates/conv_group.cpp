// csrc/schedule/templates/conv_group.cpp: chooses kernels/conv/group.cl, convolution and its data gradient on GPUs.
#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

const std::vector<GroupTile> kTiles = {
    {64, 64, 8, 4, 1.0}, {128, 64, 8, 8, 0.98}, {64, 128, 8, 8, 0.95}, {128, 32, 8, 4, 0.8}, {32, 64, 4, 4, 0.6}};

}  // namespace

bool choose_conv_group(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind == ir::ConvolveKind::kWeight || !loadable(context))
    return false;
  const bool data = node.convolve.kind == ir::ConvolveKind::kData;
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const IndexExpr groups = attrs.groups, batch = node.sizes[0], R = w.sizes[2], S = w.sizes[3];
  // Channels per group of the input (C) and of the output (K).
  const IndexExpr C = ir::floordiv(x.sizes[1], groups), K = ir::floordiv(node.sizes[1], groups);
  const int64_t channels = typical(C, 64);

  // With few channels, steps run over the flattened (r, s, c), with any channel stride. Otherwise channels must be
  // contiguous, in place or in a copy.
  const bool flat = channels < 16;
  std::optional<Operand> image;
  if (flat) image = strided_operand(context, x, kChannelsLast);
  if (!image) image = channels_last_operand(context, x);

  // The weight as [R][S][C][groups * K]. Forward, w is [groups*K, C, R, S]; in the gradient, w is [groups*C, K, R, S].
  const IndexExpr r = IndexExpr::loop(0), s = IndexExpr::loop(1), c = IndexExpr::loop(2), k = IndexExpr::loop(3);
  std::vector<IndexExpr> from = {k, c, r, s};
  if (data) from = {ir::floordiv(k, K) * C + c, ir::mod(k, K), r, s};
  const Operand weight = copied_operand(context, w, {R, S, C, node.sizes[1]}, from);

  const IndexExpr step_h = data ? attrs.stride[0] : 1, step_w = data ? attrs.stride[1] : 1;
  const IndexExpr pixels = batch * ir::ceildiv(node.sizes[2], step_h) * ir::ceildiv(node.sizes[3], step_w);
  const int64_t phases = data ? static_cast<int64_t>(attrs.stride[0]) * attrs.stride[1] : 1;
  const GroupTile tile =
      flat ? kTiles[typical(K, 64) > 32 ? 0 : 3]
           : choose_group_tile(context, kTiles, typical(pixels, 50176), typical(K, 64), attrs.groups * phases);

  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_conv_group;
  launch.kind = data ? "conv_data" : "conv_forward";
  launch.variant = tile.name() + (flat ? " flat" : "");
  define_types(context, launch, 4);
  use_tile(launch, tile, typical(R * S * C, 576));
  define(launch, "DATA_GRADIENT", data);
  define(launch, "FLAT", flat);
  if (!flat)
    define(launch, "X_VEC4", are_multiples_of_4(context, {C, image->strides[0], image->strides[2], image->strides[3]}));
  define(launch, "W_VEC4", are_multiples_of_4(context, {K}));
  if (flat && constants({R, S, C})) {
    define(launch, "FILTER_R", R.constant());
    define(launch, "FILTER_S", S.constant());
    define(launch, "FILTER_C", C.constant());
  }
  launch.buffers({{"x", image->input}, {"w", weight.input}});
  define_alignment(context, launch);
  launch.args({{"batch", batch}, {"C", C}, {"K", K}, {"R", R}, {"S", S}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
  pass_window(launch, attrs);
  pass_image(launch, "x", *image);
  launch.groups = {ir::ceildiv(pixels, tile.rows) * ir::ceildiv(K, tile.columns), groups, phases};
  launch.store_width = 4;
  launch.store_aligned = attrs.groups == 1 || are_multiples_of_4(context, {K});
  launch.store_coords = {0, 1, 2, 3};
  launch.store_dim = 1;
  lay_out(context.graph, node.outputs[0], kChannelsLast);
  return true;
}

}  // namespace ocl::schedule
