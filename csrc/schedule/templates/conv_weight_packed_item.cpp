// csrc/schedule/templates/conv_weight_packed_item.cpp: chooses kernels/conv/weight_packed_item.cl, weight gradients on
// CPUs of convolutions with one group and whole vectors of channels.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

bool choose_conv_weight_packed_item(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind != ir::ConvolveKind::kWeight || !loadable(context))
    return false;
  const ir::ConvolveAttrs& conv = node.convolve;
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  if (conv.groups != 1 || !constants(node.sizes)) return false;
  const int64_t K = node.sizes[0].constant(), C = node.sizes[1].constant(), R = node.sizes[2].constant(),
                S = node.sizes[3].constant();
  const Caps& caps = context.caps;
  const int vw = caps.vector_floats, mr = vw == 8 ? 4 : 8, nv = 2;
  if (C % vw != 0 || C % mr != 0 || K % vw != 0) return false;

  std::optional<Operand> input = strided_operand(context, x, kChannelsLast),
                         gradient = strided_operand(context, dy, kChannelsLast);
  if (!input || !input->strides[1].is_const(1)) input = dense_copy(context, x, kChannelsLast);
  if (!gradient || !gradient->strides[1].is_const(1)) gradient = dense_copy(context, dy, kChannelsLast);

  // A task computes cb x kb sums of one tap. The more sums it has, the less often pixels are copied. 128 KB of sums
  // leave room in the L2 cache for the copies of a block.
  const int64_t width = static_cast<int64_t>(nv) * vw, block = 64;
  const int64_t cb = std::min<int64_t>(C, C >= 256 ? 256 : 128),
                kb = std::min<int64_t>((K + width - 1) / width * width, C >= 256 ? 128 : 256);
  const int64_t batch = typical(dy.sizes[0], 8), out = batch * typical(dy.sizes[2], 28) * typical(dy.sizes[3], 28),
                in = batch * typical(x.sizes[2], 28) * typical(x.sizes[3], 28);
  const int64_t blocks = (out + block - 1) / block, parts = (C + cb - 1) / cb * ((K + kb - 1) / kb) * R * S;
  // The pixels of a slice should stay in the L3 cache, because every task of the slice reads them.
  const int64_t wanted = (4 * static_cast<int64_t>(caps.units) + parts - 1) / parts;
  const int64_t cached = parts > 1 ? 4 * (out * K + in * C) / (int64_t{8} << 20) + 1 : 1;
  const int64_t splits = std::clamp<int64_t>(std::max(wanted, cached), 1, std::max<int64_t>(1, blocks / 4));
  const int64_t items = std::min<int64_t>(2 * static_cast<int64_t>(caps.units), splits * parts);

  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_conv_weight_packed_item;
  launch.kind = "conv_weight";
  launch.variant = std::to_string(mr) + "x" + std::to_string(width) + " of " + std::to_string(cb) + "x" + std::to_string(kb) +
                   " packed" + (splits > 1 ? ", " + std::to_string(splits) + " splits" : "");
  define_types(context, launch, vw);
  define(launch, "MR", mr);
  define(launch, "NV", nv);
  define(launch, "CB", cb);
  define(launch, "KB", kb);
  define(launch, "PIXEL_BLOCK", block);
  launch.buffers({{"x", input->input}, {"dy", gradient->input}, {"zeros", zero_row(context, C)}});
  launch.scratch_elements = items * (block * (cb + kb + 2 * vw) + cb * kb);
  launch.args({{"batch", x.sizes[0]}, {"C", C}, {"K", K}, {"R", R}, {"S", S}, {"splits", splits}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", dy.sizes[2]}, {"out_w", dy.sizes[3]}});
  pass_window(launch, conv);
  pass_image(launch, "x", *input, false);
  pass_image(launch, "dy", *gradient, false);
  launch.groups = {items, 1, 1};
  launch.store_width = vw;
  launch.store_dim = 0;
  launch.store_coords = {0, 1, 2, 3};
  if (splits > 1) split_output(context, splits, {2, 3, 1, 0});
  return true;
}

}  // namespace ocl::schedule
