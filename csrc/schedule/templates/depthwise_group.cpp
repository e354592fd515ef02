// csrc/schedule/templates/depthwise_group.cpp: chooses kernels/depthwise/group.cl, depthwise convolution and its
// gradients on GPUs.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

Operand any_strides(TemplateContext& context, const ir::View& view) {
  const auto in_place = strided_operand(context, view, kChannelsLast);
  return in_place ? *in_place : dense_copy(context, view, kChannelsLast);
}

bool read_as_quads(const TemplateContext& context, const Operand& operand, const IndexExpr& channels) {
  return channels_contiguous(operand) &&
         are_multiples_of_4(context, {channels, operand.strides[0], operand.strides[2], operand.strides[3]});
}

}  // namespace

bool choose_depthwise_group(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || !loadable(context)) return false;
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::ConvolveKind kind = attrs.kind;
  const bool weight = kind == ir::ConvolveKind::kWeight;
  if (weight != (context.kernel == KernelId::k_depthwise_weight_group)) return false;
  const ir::View &first = node.operands[0], &second = node.operands[1];
  const ir::Shape& filter = weight ? node.sizes : second.sizes;
  const IndexExpr channels = first.sizes[1];
  const bool one_filter = channels.is_const(attrs.groups) && (weight ? second.sizes[1] : node.sizes[1]).is_const(attrs.groups);
  if (!one_filter || attrs.groups == 1 || !constants({filter[2], filter[3]})) return false;
  const int64_t R = filter[2].constant(), S = filter[3].constant();
  if (R > 11 || S > 11 || std::max(attrs.stride[0], attrs.stride[1]) > 4 || std::max(attrs.dilation[0], attrs.dilation[1]) > 4)
    return false;
  const int strip = 4 % attrs.stride[1] == 0 ? 4 : attrs.stride[1];

  launch = TemplateLaunch{};
  launch.kernel = context.kernel;
  launch.kind = "depthwise";
  define_types(context, launch, 4);
  define(launch, "FILTER_R", R);
  define(launch, "FILTER_S", S);
  define(launch, "STRIDE_H", attrs.stride[0]);
  define(launch, "STRIDE_W", attrs.stride[1]);
  define(launch, "DILATION_H", attrs.dilation[0]);
  define(launch, "DILATION_W", attrs.dilation[1]);
  define(launch, "STRIP", strip);
  launch.store_width = 4;
  launch.store_coords = {0, 1, 2, 3};

  if (!weight) {
    const bool data = kind == ir::ConvolveKind::kData;
    const Operand image = any_strides(context, first);
    const Operand packed =
        copied_operand(context, second, {R, S, channels}, {IndexExpr::loop(2), 0, IndexExpr::loop(0), IndexExpr::loop(1)});
    const IndexExpr strips = ir::ceildiv(node.sizes[3] + (data ? attrs.padding[1] % attrs.stride[1] : 0), strip);
    launch.variant = data ? "data" : "forward";
    define(launch, "OPERATION", data ? 1 : 0);
    define(launch, "QUADS", read_as_quads(context, image, channels));
    launch.buffers({{"x", image.input}, {"w", packed.input}});
    define_alignment(context, launch);
    launch.args({{"C", channels}, {"pad_h", attrs.padding[0]}, {"pad_w", attrs.padding[1]}});
    launch.args({{"in_h", first.sizes[2]}, {"in_w", first.sizes[3]}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
    pass_image(launch, "x", image);
    launch.groups = {ir::ceildiv(ir::ceildiv(channels, 4) * strips, 128), node.sizes[2], node.sizes[0]};
    launch.local = {128, 1, 1};
    launch.store_dim = 1;
    lay_out(context.graph, node.outputs[0], kChannelsLast);
    return true;
  }

  const Operand x = any_strides(context, first), dy = any_strides(context, second);
  const int64_t rows = R * S <= 25 ? R : 1, row_groups = (R + rows - 1) / rows,
                wide = (channels.constant() + 63) / 64 * row_groups;
  const IndexExpr strips = first.sizes[0] * second.sizes[2] * ir::ceildiv(second.sizes[3], strip);
  const int64_t wanted = std::clamp<int64_t>(typical(strips, 12544) / 64, 1, (4 * context.caps.units + wide - 1) / wide);
  const IndexExpr split_strips = ir::ceildiv(strips, wanted);
  const int64_t splits =
      split_strips.is_const() ? (strips.constant() + split_strips.constant() - 1) / split_strips.constant() : wanted;
  launch.variant = "weight in " + std::to_string(splits) + " slices";
  define(launch, "OPERATION", 2);
  define(launch, "ROWS", rows);
  define(launch, "QUADS", read_as_quads(context, x, channels) && read_as_quads(context, dy, channels));
  launch.buffers({{"dy", dy.input}, {"x", x.input}});
  define_alignment(context, launch);
  launch.args({{"batch", first.sizes[0]}, {"C", channels}, {"split_strips", split_strips}});
  launch.args({{"in_h", first.sizes[2]}, {"in_w", first.sizes[3]}, {"out_h", second.sizes[2]}, {"out_w", second.sizes[3]}});
  launch.args({{"pad_h", attrs.padding[0]}, {"pad_w", attrs.padding[1]}});
  pass_image(launch, "dy", dy);
  pass_image(launch, "x", x);
  launch.groups = {ir::ceildiv(channels, 64), row_groups, splits};
  launch.local = {256, 1, 1};
  launch.store_dim = 0;
  lay_out(context.graph, node.outputs[0], {0, 1, 2, 3});
  if (splits > 1) split_output(context, splits, {2, 3, 1, 0});
  return true;
}

}  // namespace ocl::schedule
