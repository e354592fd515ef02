// csrc/schedule/families/depthwise/offer_item.cpp: offers kernels/depthwise/item.cl, depthwise convolution and its
// gradients on CPUs.
#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

void offer_depthwise_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& conv = node.convolve;
  const bool weight = conv.kind == ir::ConvolveKind::kWeight;
  // `other` is the filters, or dy for the weight gradient.
  const ir::View &x = node.operands[0], &other = node.operands[1];
  const ir::Shape& filter = weight ? node.sizes : other.sizes;
  const int64_t C = conv.groups, R = filter[2].constant(), S = filter[3].constant();
  const Caps& caps = draft.caps;
  int vw = caps.vector_floats;
  while (vw > 4 && C < vw) vw /= 2;

  const Operand input = channels_last_image(draft, x);
  TemplateLaunch& launch = draft.launch();
  launch.kind = "depthwise";
  define_types(draft, launch, vw);
  define(launch, "DEPTHWISE_KIND", weight ? 2 : conv.kind == ir::ConvolveKind::kData ? 1 : 0);
  define(launch, {{"R", R}, {"S", S}, {"STRIDE_H", conv.stride[0]}, {"STRIDE_W", conv.stride[1]}});
  define(launch, {{"DIL_H", conv.dilation[0]}, {"DIL_W", conv.dilation[1]}, {"PREFETCHES", caps.prefetch}});
  const ir::Shape& out = weight ? other.sizes : node.sizes;
  launch.args({{"batch", x.sizes[0]}, {"C", C}, {"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", out[2]}, {"out_w", out[3]}});
  const int64_t blocks = (C + vw - 1) / vw, wanted = 4 * static_cast<int64_t>(caps.units);

  if (weight) {
    const Operand gradient = channels_last_image(draft, other);
    const int64_t rows = typical(other.sizes[0], 8) * typical(other.sizes[2], 28);
    const int64_t splits = std::clamp<int64_t>((wanted + blocks - 1) / blocks, 1, std::max<int64_t>(1, rows / 8));
    launch.variant = "weight gradient";
    launch.buffers({{"x", input.input}, {"dy", gradient.input}});
    pass_image(launch, "x", input, false);
    pass_image(launch, "dy", gradient, false);
    launch.groups = {blocks, splits, 1};
    store_along(launch, 0, vw);
    if (splits > 1) split_output(draft, splits, {2, 3, 1, 0});
    return;
  }
  // The filters as [R][S][C], so that a tap of VW channels is one load.
  const IndexExpr r = IndexExpr::loop(0), s = IndexExpr::loop(1), c = IndexExpr::loop(2);
  const Operand packed = copied_operand(draft, other, {R, S, C}, {c, 0, r, s});
  draft.lay_out(node.outputs[0], kChannelsLast);
  const int64_t rows = typical(node.sizes[0], 8) * typical(node.sizes[2], 28);
  const int64_t per_item = rows >= wanted ? blocks : std::max<int64_t>(1, blocks * rows / wanted);
  launch.variant = conv.kind == ir::ConvolveKind::kData ? "data gradient" : "forward";
  launch.buffers({{"x", input.input}, {"w", packed.input}});
  launch.arg("blocks_per_item", per_item);
  pass_image(launch, "x", input, false);
  launch.groups = {node.sizes[0] * node.sizes[2], ir::ceildiv(blocks, per_item), 1};
  store_along(launch, 1, vw);
}

}  // namespace ocl::schedule
