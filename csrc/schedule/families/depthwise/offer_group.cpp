// csrc/schedule/families/depthwise/offer_group.cpp: offers kernels/depthwise/group.cl, depthwise convolution and its
// gradients on GPUs.
#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;
namespace {

bool read_as_quads(const Draft& draft, const Operand& operand, const IndexExpr& channels) {
  return channels_contiguous(operand) &&
         multiples(draft, 4, {channels, operand.strides[0], operand.strides[2], operand.strides[3]});
}

/// Passes what the forward convolution and both gradients take.
void pass_sizes(Draft& draft, const ir::Shape& out) {
  const ir::Node& node = draft.node();
  const ir::Shape& in = node.operands[0].sizes;
  draft.launch().args({{"C", in[1]}, {"pad_h", node.convolve.padding[0]}, {"pad_w", node.convolve.padding[1]}});
  draft.launch().args({{"in_h", in[2]}, {"in_w", in[3]}, {"out_h", out[2]}, {"out_w", out[3]}});
}

void offer_weight(Draft& draft, int64_t R, int64_t S, int strip) {
  const ir::Node& node = draft.node();
  TemplateLaunch& launch = draft.launch();
  const ir::View &first = node.operands[0], &second = node.operands[1];
  const IndexExpr& channels = first.sizes[1];
  const Operand x = any_image(draft, first), dy = any_image(draft, second);
  // Registers hold the sums of four channels for each tap. With 25 taps, AMD's compiler needs 166 of them; Intel's, which has
  // 112 for a work-item, keeps 9 taps.
  const int64_t most_taps = few_registers(draft.caps) ? 9 : 25;
  const int64_t rows = R * S <= most_taps ? R : 1, row_groups = (R + rows - 1) / rows,
                wide = (channels.constant() + 63) / 64 * row_groups;
  const IndexExpr strips = first.sizes[0] * second.sizes[2] * ir::ceildiv(second.sizes[3], strip);
  const int64_t wanted = std::clamp<int64_t>(typical(strips, 12544) / 64, 1, (4 * draft.caps.units + wide - 1) / wide);
  const IndexExpr split_strips = ir::ceildiv(strips, wanted);
  const int64_t splits =
      split_strips.is_const() ? (strips.constant() + split_strips.constant() - 1) / split_strips.constant() : wanted;
  launch.variant = "weight in " + std::to_string(splits) + " slices";
  define(launch, {{"OPERATION", 2}, {"ROWS", rows}});
  define(launch, "QUADS", read_as_quads(draft, x, channels) && read_as_quads(draft, dy, channels));
  launch.buffers({{"dy", dy.input}, {"x", x.input}});
  define_alignment(draft);
  pass_sizes(draft, second.sizes);
  launch.args({{"batch", first.sizes[0]}, {"split_strips", split_strips}});
  pass_image(launch, "dy", dy);
  pass_image(launch, "x", x);
  launch.groups = {ir::ceildiv(channels, 64), row_groups, splits};
  launch.local = {256, 1, 1};
  store_along(launch, 0, 4);
  draft.lay_out(node.outputs[0], {0, 1, 2, 3});
  if (splits > 1) split_output(draft, splits, {2, 3, 1, 0});
}

void offer_pixels(Draft& draft, int64_t R, int64_t S, int strip) {
  const ir::Node& node = draft.node();
  TemplateLaunch& launch = draft.launch();
  const ir::ConvolveAttrs& attrs = node.convolve;
  const ir::View &first = node.operands[0], &second = node.operands[1];
  const IndexExpr& channels = first.sizes[1];
  const bool data = attrs.kind == ir::ConvolveKind::kData;
  const Operand image = any_image(draft, first);
  const Operand packed =
      copied_operand(draft, second, {R, S, channels}, {IndexExpr::loop(2), 0, IndexExpr::loop(0), IndexExpr::loop(1)});
  const IndexExpr strips = ir::ceildiv(node.sizes[3] + (data ? attrs.padding[1] % attrs.stride[1] : 0), strip);
  launch.variant = data ? "data" : "forward";
  define(launch, {{"OPERATION", data ? 1 : 0}, {"QUADS", read_as_quads(draft, image, channels)}});
  launch.buffers({{"x", image.input}, {"w", packed.input}});
  define_alignment(draft);
  pass_sizes(draft, node.sizes);
  pass_image(launch, "x", image);
  launch.groups = {ir::ceildiv(ir::ceildiv(channels, 4) * strips, 128), node.sizes[2], node.sizes[0]};
  launch.local = {128, 1, 1};
  store_along(launch, 1, 4);
  draft.lay_out(node.outputs[0], kChannelsLast);
}

}  // namespace

void offer_depthwise_group(Draft& draft) {
  const ir::ConvolveAttrs& attrs = draft.node().convolve;
  const bool weight = attrs.kind == ir::ConvolveKind::kWeight;
  const ir::Shape& filter = weight ? draft.node().sizes : draft.node().operands[1].sizes;
  const int64_t R = filter[2].constant(), S = filter[3].constant();
  const int strip = 4 % attrs.stride[1] == 0 ? 4 : attrs.stride[1];
  TemplateLaunch& launch = draft.launch();
  launch.kind = "depthwise";
  define_types(draft, launch, 4);
  define(launch, {{"FILTER_R", R}, {"FILTER_S", S}, {"STRIDE_H", attrs.stride[0]}, {"STRIDE_W", attrs.stride[1]}});
  define(launch, {{"DILATION_H", attrs.dilation[0]}, {"DILATION_W", attrs.dilation[1]}, {"STRIP", strip}});
  (weight ? offer_weight : offer_pixels)(draft, R, S, strip);
}

}  // namespace ocl::schedule
