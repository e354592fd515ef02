// csrc/schedule/templates/winograd_weight_item.cpp: chooses kernels/winograd/weight_item.cl, weight gradients of 3x3
// convolutions with stride 1 on CPUs.
#include <algorithm>
#include <array>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

bool choose_winograd_weight_item(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kConvolve || node.convolve.kind != ir::ConvolveKind::kWeight) return false;
  const ir::ConvolveAttrs& conv = node.convolve;
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  for (const ir::View& view : node.operands)
    if (context.graph.buffers[view.buffer].dtype != ir::DType::kF32) return false;
  if (conv.groups != 1 || conv.stride != std::array<int, 2>{1, 1} || conv.dilation != std::array<int, 2>{1, 1}) return false;
  if (!node.sizes[2].is_const(3) || !node.sizes[3].is_const(3) || !constants(node.sizes)) return false;
  const int64_t K = node.sizes[0].constant(), C = node.sizes[1].constant();
  const Caps& caps = context.caps;
  const int vw = caps.vector_floats, mr = vw == 8 ? 4 : 8, nv = 2;
  if (C < 16 || K < 16 || C % vw != 0 || C % mr != 0 || K % vw != 0) return false;
  const int64_t height = typical(dy.sizes[2], 28), width = typical(dy.sizes[3], 28), batch = typical(dy.sizes[0], 8);
  const int64_t tiles = batch * ((height + 1) / 2) * ((width + 1) / 2);
  if (tiles < 64) return false;

  std::optional<Operand> input = strided_operand(context, x, kChannelsLast),
                         gradient = strided_operand(context, dy, kChannelsLast);
  if (!input || !input->strides[1].is_const(1)) input = dense_copy(context, x, kChannelsLast);
  if (!gradient || !gradient->strides[1].is_const(1)) gradient = dense_copy(context, dy, kChannelsLast);

  // 16 * cb * kb sums and a block of transformed tiles must fit into the L2 cache. Long blocks load and store the sums
  // less often; short blocks have smaller rounding errors.
  const int64_t cb = C <= 64 ? 64 : 128, kb = K <= 64 ? 64 : 128, block = cb * kb > 64 * 128 ? 32 : 48;
  // The tiles of a slice should stay in the L3 cache, because every pair (c, k) of channel blocks reads them.
  const int64_t blocks = (tiles + block - 1) / block, pairs = (C + cb - 1) / cb * ((K + kb - 1) / kb);
  const int64_t wanted = (4 * static_cast<int64_t>(caps.units) + pairs - 1) / pairs;
  const int64_t bytes = 4 * batch * height * width * (C + K), cached = bytes / (int64_t{8} << 20) + 1;
  const int64_t splits = std::clamp<int64_t>(std::max(wanted, cached), 1, std::max<int64_t>(1, blocks / 4));
  const int64_t items = std::min<int64_t>(2 * static_cast<int64_t>(caps.units), splits * pairs);

  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_winograd_weight_item;
  launch.kind = "conv_weight";
  launch.variant = "F(2,3) " + std::to_string(cb) + "x" + std::to_string(kb) + ", blocks of " + std::to_string(block) +
                   (splits > 1 ? ", " + std::to_string(splits) + " splits" : "");
  define_types(context, launch, vw);
  define(launch, "MR", mr);
  define(launch, "NV", nv);
  define(launch, "CB", cb);
  define(launch, "KB", kb);
  define(launch, "TILE_BLOCK", block);
  launch.buffers({{"x", input->input}, {"dy", gradient->input}, {"zeros", zero_row(context, std::max(C, K))}});
  launch.scratch_elements = items * 16 * (block * (cb + kb) + cb * kb);
  launch.args({{"batch", x.sizes[0]}, {"C", C}, {"K", K}, {"splits", splits}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", dy.sizes[2]}, {"out_w", dy.sizes[3]}});
  launch.args({{"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}});
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
