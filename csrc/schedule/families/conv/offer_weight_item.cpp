// csrc/schedule/families/conv/offer_weight_item.cpp: offers kernels for weight gradients of convolutions on CPUs:
// kernels/conv/weight_item.cl for any groups, and conv/weight_packed_item.cl for one group and whole vectors of channels.
#include "csrc/schedule/families/conv/window.h"

namespace ocl::schedule {

void offer_conv_weight_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  const ir::ConvolveAttrs& conv = node.convolve;
  const Window window(node);
  const int64_t C = window.C.constant(), K = window.K.constant(), R = window.R.constant(), S = window.S.constant();
  const Caps& caps = draft.caps;
  const int vw = caps.vector_floats;

  const Operand input = any_image(draft, x), gradient = any_image(draft, dy);

  const int mr = rows_of_two_vectors(caps), nv = vw == 4 ? 3 : K <= vw ? 1 : 2, width = nv * vw;
  const int64_t row_tiles = (R * S * C + mr - 1) / mr, panels = (K + width - 1) / width * conv.groups;
  const int64_t pixels = typical(dy.sizes[0], 8) * typical(dy.sizes[2], 28) * typical(dy.sizes[3], 28),
                blocks = (pixels + 223) / 224;
  const int64_t wanted = 4 * static_cast<int64_t>(caps.units);
  const int64_t mt = std::min<int64_t>(row_tiles, 18);  // The sums then take 18 KB at 8x32.
  const int64_t items = (row_tiles + mt - 1) / mt * panels;
  const int64_t splits = std::clamp<int64_t>((wanted + items - 1) / items, 1, std::max<int64_t>(1, blocks / 2));

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  launch.variant = std::to_string(mr) + "x" + std::to_string(width) + " in place" +
                   (splits > 1 ? ", " + std::to_string(splits) + " splits" : "");
  define_types(draft, launch, vw);
  define(launch, {{"MR", mr}, {"NV", nv}, {"MT", mt}, {"WHOLE_VECTORS", K % vw == 0}});
  launch.buffers({{"x", input.input}, {"dy", gradient.input}});
  pass_sizes(draft, window, C);
  launch.arg("groups", conv.groups);
  pass_image(launch, "x", input);
  pass_image(launch, "dy", gradient);
  launch.groups = {panels, ir::ceildiv(row_tiles, mt), splits};
  store_along(launch, 0, vw);
  if (splits > 1) split_output(draft, splits, {2, 3, 1, 0});
}

void offer_conv_weight_packed_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  const Window window(node);
  const int64_t C = window.C.constant(), K = window.K.constant(), R = window.R.constant(), S = window.S.constant();
  const Caps& caps = draft.caps;
  // Few channels fill one vector of a tile. Then it has more rows, so that enough sums are added at the same time.
  const int vw = caps.vector_floats, nv = C > vw ? 2 : 1, mr = std::max(rows_of_two_vectors(caps), nv == 1 ? vw : 0);
  const Operand input = channels_last_image(draft, x), gradient = channels_last_image(draft, dy);

  // A task computes cb x kb sums of one tap. The more sums it has, the less often pixels are copied. 128 KB of sums
  // leave room in the L2 cache for the copies of a block.
  const int64_t width = static_cast<int64_t>(nv) * vw, block = 64;
  const int64_t cb = std::min<int64_t>((C + width - 1) / width * width, C >= 256 ? 256 : 128),
                kb = std::min<int64_t>(K, C >= 256 ? 128 : 256);
  const int64_t batch = typical(dy.sizes[0], 8), out = batch * typical(dy.sizes[2], 28) * typical(dy.sizes[3], 28),
                in = batch * typical(x.sizes[2], 28) * typical(x.sizes[3], 28);
  const int64_t blocks = (out + block - 1) / block, parts = (C + cb - 1) / cb * ((K + kb - 1) / kb) * R * S;
  // The pixels of a slice should stay in the L3 cache, because every task of the slice reads them.
  const int64_t wanted = (4 * static_cast<int64_t>(caps.units) + parts - 1) / parts;
  const int64_t cached = parts > 1 ? 4 * (out * K + in * C) / (int64_t{8} << 20) + 1 : 1;
  const int64_t splits = std::clamp<int64_t>(std::max(wanted, cached), 1, std::max<int64_t>(1, blocks / 4));
  const int64_t items = std::min<int64_t>(2 * static_cast<int64_t>(caps.units), splits * parts);

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  launch.variant = std::to_string(mr) + "x" + std::to_string(width) + " of " + std::to_string(cb) + "x" + std::to_string(kb) +
                   " packed" + (splits > 1 ? ", " + std::to_string(splits) + " splits" : "");
  define_types(draft, launch, vw);
  define(launch, {{"MR", mr}, {"NV", nv}, {"CB", cb}, {"KB", kb}, {"PIXEL_BLOCK", block}, {"PREFETCHES", caps.prefetch}});
  launch.buffers({{"x", input.input}, {"dy", gradient.input}, {"zeros", zero_row(draft, C)}});
  launch.scratch_elements = items * (block * (cb + kb + 2 * vw) + cb * kb);
  pass_sizes(draft, window, C);
  launch.arg("splits", splits);
  pass_image(launch, "x", input, false);
  pass_image(launch, "dy", gradient, false);
  launch.groups = {items, 1, 1};
  store_along(launch, 1, vw);
  if (splits > 1) split_output(draft, splits, {2, 3, 0, 1});
}

}  // namespace ocl::schedule
