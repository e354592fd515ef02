// csrc/schedule/templates/depthwise_item.cpp: chooses kernels/depthwise/item.cl, depthwise convolution and its
// gradients on CPUs.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

using ir::IndexExpr;

bool choose_depthwise_item(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || !loadable(context)) return false;
  const ir::ConvolveAttrs& conv = node.convolve;
  const bool weight = conv.kind == ir::ConvolveKind::kWeight;
  if (weight != (context.kernel == KernelId::k_depthwise_weight_item)) return false;
  // `other` is the filters, or dy for the weight gradient.
  const ir::View &x = node.operands[0], &other = node.operands[1];
  const ir::Shape& filter = weight ? node.sizes : other.sizes;
  if (!constants(filter) || !x.sizes[1].is_const(conv.groups) || !filter[0].is_const(conv.groups) || !filter[1].is_const(1))
    return false;
  const int64_t C = conv.groups, R = filter[2].constant(), S = filter[3].constant();
  const Caps& caps = context.caps;
  int vw = caps.vector_floats;
  while (vw > 4 && C < vw) vw /= 2;
  if (C < vw || R * S > 49 || conv.stride[1] > 8) return false;

  std::optional<Operand> input = strided_operand(context, x, kChannelsLast);
  if (!input || !input->strides[1].is_const(1)) input = dense_copy(context, x, kChannelsLast);
  launch = TemplateLaunch{};
  launch.kernel = context.kernel;
  launch.kind = "depthwise";
  define_types(context, launch, vw);
  define(launch, "DEPTHWISE_KIND", weight ? 2 : conv.kind == ir::ConvolveKind::kData ? 1 : 0);
  define(launch, "R", R);
  define(launch, "S", S);
  define(launch, "STRIDE_H", conv.stride[0]);
  define(launch, "STRIDE_W", conv.stride[1]);
  define(launch, "DIL_H", conv.dilation[0]);
  define(launch, "DIL_W", conv.dilation[1]);
  launch.store_width = vw;
  launch.store_coords = {0, 1, 2, 3};
  const int64_t blocks = (C + vw - 1) / vw, wanted = 4 * static_cast<int64_t>(caps.units);

  if (weight) {
    std::optional<Operand> gradient = strided_operand(context, other, kChannelsLast);
    if (!gradient || !gradient->strides[1].is_const(1)) gradient = dense_copy(context, other, kChannelsLast);
    const int64_t rows = typical(other.sizes[0], 8) * typical(other.sizes[2], 28);
    const int64_t splits = std::clamp<int64_t>((wanted + blocks - 1) / blocks, 1, std::max<int64_t>(1, rows / 8));
    launch.variant = "weight gradient";
    launch.buffers({{"x", input->input}, {"dy", gradient->input}});
    launch.args({{"batch", x.sizes[0]}, {"C", C}, {"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}});
    launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", other.sizes[2]}, {"out_w", other.sizes[3]}});
    pass_image(launch, "x", *input, false);
    pass_image(launch, "dy", *gradient, false);
    launch.groups = {blocks, splits, 1};
    launch.store_dim = 0;
    if (splits > 1) split_output(context, splits, {2, 3, 1, 0});
    return true;
  }
  // The filters as [R][S][C], so that a tap of VW channels is one load.
  const IndexExpr r = IndexExpr::loop(0), s = IndexExpr::loop(1), c = IndexExpr::loop(2);
  const Operand packed = copied_operand(context, other, {R, S, C}, {c, 0, r, s});
  lay_out(context.graph, node.outputs[0], kChannelsLast);
  const int64_t rows = typical(node.sizes[0], 8) * typical(node.sizes[2], 28);
  const int64_t per_item = rows >= wanted ? blocks : std::max<int64_t>(1, blocks * rows / wanted);
  launch.variant = conv.kind == ir::ConvolveKind::kData ? "data gradient" : "forward";
  launch.buffers({{"x", input->input}, {"w", packed.input}});
  launch.args({{"batch", x.sizes[0]}, {"C", C}, {"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
  launch.arg("blocks_per_item", per_item);
  pass_image(launch, "x", *input, false);
  launch.groups = {node.sizes[0] * node.sizes[2], ir::ceildiv(blocks, per_item), 1};
  launch.store_dim = 1;
  return true;
}

}  // namespace ocl::schedule
