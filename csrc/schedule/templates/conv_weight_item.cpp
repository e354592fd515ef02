// csrc/schedule/templates/conv_weight_item.cpp: chooses kernels/conv/weight_item.cl, weight gradients of convolutions
// on CPUs, for any groups.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

using ir::IndexExpr;

bool choose_conv_weight_item(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind != ir::ConvolveKind::kWeight || !loadable(context))
    return false;
  const ir::ConvolveAttrs& conv = node.convolve;
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  if (!constants(node.sizes)) return false;
  const int64_t K = node.sizes[0].constant() / conv.groups, C = node.sizes[1].constant(), R = node.sizes[2].constant(),
                S = node.sizes[3].constant();
  const Caps& caps = context.caps;
  const int vw = caps.vector_floats;

  std::optional<Operand> input = strided_operand(context, x, kChannelsLast),
                         gradient = strided_operand(context, dy, kChannelsLast);
  if (!input) input = dense_copy(context, x, kChannelsLast);
  if (!gradient) gradient = dense_copy(context, dy, kChannelsLast);

  // 8 rows, because 8 pointers fit into scalar registers.
  const int mr = vw == 8 ? 4 : 8, nv = vw == 4 ? 3 : K <= vw ? 1 : 2, width = nv * vw;
  const int64_t row_tiles = (R * S * C + mr - 1) / mr, panels = (K + width - 1) / width * conv.groups;
  const int64_t pixels = typical(dy.sizes[0], 8) * typical(dy.sizes[2], 28) * typical(dy.sizes[3], 28),
                blocks = (pixels + 223) / 224;
  const int64_t wanted = 4 * static_cast<int64_t>(caps.units);
  const int64_t mt = std::min<int64_t>(row_tiles, 18);  // The sums then take 18 KB at 8x32.
  const int64_t items = (row_tiles + mt - 1) / mt * panels;
  const int64_t splits = std::clamp<int64_t>((wanted + items - 1) / items, 1, std::max<int64_t>(1, blocks / 2));

  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_conv_weight_item;
  launch.kind = "conv_weight";
  launch.variant = std::to_string(mr) + "x" + std::to_string(width) + " in place" +
                   (splits > 1 ? ", " + std::to_string(splits) + " splits" : "");
  define_types(context, launch, vw);
  define(launch, "MR", mr);
  define(launch, "NV", nv);
  define(launch, "MT", mt);
  define(launch, "WHOLE_VECTORS", K % vw == 0);
  launch.buffers({{"x", input->input}, {"dy", gradient->input}});
  launch.args({{"batch", x.sizes[0]}, {"C", C}, {"K", K}, {"groups", conv.groups}, {"R", R}, {"S", S}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", dy.sizes[2]}, {"out_w", dy.sizes[3]}});
  pass_window(launch, conv);
  pass_image(launch, "x", *input);
  pass_image(launch, "dy", *gradient);
  launch.groups = {panels, ir::ceildiv(row_tiles, mt), splits};
  launch.store_width = vw;
  launch.store_dim = 0;
  launch.store_coords = {0, 1, 2, 3};
  if (splits > 1) split_output(context, splits, {2, 3, 1, 0});
  return true;
}

}  // namespace ocl::schedule
