// csrc/schedule/templates/conv_weight_group.cpp: chooses kernels/conv/weight_group.cl, weight gradients of convolutions
// on GPUs.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

const std::vector<GroupTile> kTiles = {{128, 64, 8, 4, 1.0}, {64, 64, 8, 4, 0.95}};

Operand any_strides(TemplateContext& context, const ir::View& view) {
  const auto in_place = strided_operand(context, view, kChannelsLast);
  return in_place ? *in_place : dense_copy(context, view, kChannelsLast);
}

}  // namespace

bool choose_conv_weight_group(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind != ir::ConvolveKind::kWeight || !loadable(context))
    return false;
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  const IndexExpr groups = attrs.groups, batch = x.sizes[0], P = dy.sizes[2], Q = dy.sizes[3];
  const IndexExpr C = node.sizes[1], K = ir::floordiv(node.sizes[0], groups), R = node.sizes[2], S = node.sizes[3];
  const Operand from = any_strides(context, x), gradient = any_strides(context, dy);

  // Cut the pixels into enough slices to fill the device four times, but each long enough to be worth its partial
  // result.
  const int64_t rows = typical(K, 64), columns = typical(R * S * C, 576), pixels = typical(batch * P * Q, 50176);
  const size_t tall = rows <= 64 ? 1 : 0;
  const GroupTile tile =
      kTiles[context.choices.pick("tile", {kTiles[tall].name(), kTiles[1 - tall].name()}) == 0 ? tall : 1 - tall];
  const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * attrs.groups;
  const int64_t most = std::max<int64_t>(1, pixels / 256), full = std::min((4 * context.caps.units + tiles - 1) / tiles, most);
  const int64_t wanted = context.choices.pick("splits", {full, std::max<int64_t>(full / 2, 1), std::min(2 * full, most)});
  const IndexExpr split_pixels = ir::ceildiv(ir::ceildiv(batch * P * Q, wanted), 16) * 16;
  // If sizes are known only at run time, a slice may be empty. The kernel then stores zeros.
  const int64_t splits = split_pixels.is_const() ? (pixels + split_pixels.constant() - 1) / split_pixels.constant() : wanted;

  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_conv_weight_group;
  launch.kind = "conv_weight";
  launch.variant = tile.name() + (splits > 1 ? " in " + std::to_string(splits) + " slices" : "");
  define_types(context, launch, 4);
  use_tile(launch, tile, pixels / splits);
  define(launch, "DY_VEC4",
         channels_contiguous(gradient) &&
             are_multiples_of_4(context, {K, gradient.strides[0], gradient.strides[2], gradient.strides[3]}));
  define(launch, "X_VEC4",
         channels_contiguous(from) && are_multiples_of_4(context, {C, from.strides[0], from.strides[2], from.strides[3]}));
  if (constants({R, S})) {
    define(launch, "FILTER_R", R.constant());
    define(launch, "FILTER_S", S.constant());
  }
  launch.buffers({{"dy", gradient.input}, {"x", from.input}});
  define_alignment(context, launch);
  launch.args({{"batch", batch}, {"C", C}, {"K", K}, {"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", P}, {"out_w", Q}});
  launch.args({{"R", R}, {"S", S}, {"split_pixels", split_pixels}});
  pass_window(launch, attrs);
  pass_image(launch, "dy", gradient);
  pass_image(launch, "x", from);
  launch.groups = {ir::ceildiv(R * S * C, tile.columns) * ir::ceildiv(K, tile.rows), groups, splits};
  launch.store_width = 4;
  launch.store_aligned = are_multiples_of_4(context, {C});
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
