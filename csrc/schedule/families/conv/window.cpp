// csrc/schedule/families/conv/window.cpp: sizes and slices of convolutions.
#include "csrc/schedule/families/conv/window.h"

namespace ocl::schedule {

Window::Window(const ir::Node& node)
    : data(node.convolve.kind == ir::ConvolveKind::kData),
      weight(node.convolve.kind == ir::ConvolveKind::kWeight),
      attrs(node.convolve) {
  const ir::ConvolveAttrs& conv = node.convolve;
  const ir::View &x = node.operands[0], &second = node.operands[1];
  groups = conv.groups;
  in_h = x.sizes[2];
  in_w = x.sizes[3];
  const ir::Shape& filter = weight ? node.sizes : second.sizes;
  R = filter[2];
  S = filter[3];
  if (weight) {
    batch = x.sizes[0];
    C = node.sizes[1];
    K = ir::floordiv(node.sizes[0], groups);
    pixels = batch * second.sizes[2] * second.sizes[3];
    return;
  }
  batch = node.sizes[0];
  C = ir::floordiv(x.sizes[1], groups);
  K = ir::floordiv(node.sizes[1], groups);
  const IndexExpr step_h = data ? conv.stride[0] : 1, step_w = data ? conv.stride[1] : 1;
  pixels = batch * ir::ceildiv(node.sizes[2], step_h) * ir::ceildiv(node.sizes[3], step_w);
  if (data) phases = static_cast<int64_t>(conv.stride[0]) * conv.stride[1];
}

void pass_sizes(Draft& draft, const Window& window, const IndexExpr& C) {
  TemplateLaunch& launch = draft.launch();
  const ir::Node& node = draft.node();
  const ir::Shape& out = window.weight ? node.operands[1].sizes : node.sizes;
  launch.args({{"batch", window.batch}, {"C", C}, {"K", window.K}, {"R", window.R}, {"S", window.S}});
  launch.args({{"in_h", window.in_h}, {"in_w", window.in_w}, {"out_h", out[2]}, {"out_w", out[3]}});
  pass_window(launch, window.attrs);
}

PixelSlices pixel_slices(const IndexExpr& pixels, int64_t wanted, int step) {
  const IndexExpr slice = ir::ceildiv(ir::ceildiv(pixels, wanted), step) * step;
  return {slice, slice.is_const() ? (typical(pixels, 50176) + slice.constant() - 1) / slice.constant() : wanted};
}

void store_slices(Draft& draft, int64_t slices) {
  const ir::BufferId output = draft.node().outputs[0];
  draft.lay_out(output, slices > 1 ? std::vector<int>{0, 1, 2, 3} : kChannelsLast);
  if (slices > 1) split_output(draft, slices, kChannelsLast);
}

}  // namespace ocl::schedule
