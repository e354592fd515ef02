// csrc/schedule/families/winograd/offer_weight_item.cpp: offers kernels/winograd/weight_item.cl, weight gradients of 3x3
// convolutions with stride 1 on CPUs.
#include <limits>
#include <tuple>

#include "csrc/schedule/families/winograd/filters.h"

namespace ocl::schedule {
namespace {

/// The tasks of a launch: cb x kb channels of a slice of the tiles, in blocks.
struct WeightTasks {
  int64_t cb, kb, block, splits;
};

/// Picks the division in which the busiest compute unit has the least work. Transforming a channel of a tile costs as much as
/// 12 products. `bytes`: the operands.
WeightTasks divide_weights(int64_t C, int64_t K, int64_t tiles, int64_t bytes, int64_t units) {
  WeightTasks best{};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const int64_t cb : {128, 64})
    for (const int64_t kb : {128, 64}) {
      if ((cb > 64 && C <= 64) || (kb > 64 && K <= 64)) continue;
      // 16 * cb * kb sums and a block of transformed tiles must fit into the L2 cache. Long blocks load and store the sums
      // less often; short blocks have smaller rounding errors.
      const int64_t block = cb * kb > 64 * 128 ? 32 : 48;
      // The tiles of a slice should stay in the L3 cache, because every pair (c, k) of channel blocks reads them.
      const int64_t blocks = parts(tiles, block), pairs = parts(C, cb) * parts(K, kb), cached = bytes / (int64_t{8} << 20) + 1;
      const int64_t splits =
          std::clamp<int64_t>(std::max(parts(4 * units, pairs), cached), 1, std::max<int64_t>(1, blocks / 4));
      const int64_t work = parts(splits * pairs, units) * parts(blocks, splits) * block * (cb * kb + 12 * (cb + kb));
      if (work < least) std::tie(best, least) = std::tuple(WeightTasks{cb, kb, block, splits}, work);
    }
  return best;
}

}  // namespace

void offer_winograd_weight_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& conv = node.convolve;
  const ir::View &x = node.operands[0], &dy = node.operands[1];
  const int64_t K = node.sizes[0].constant(), C = node.sizes[1].constant(), tiles = winograd_weight_patches(node);
  const Caps& caps = draft.caps;
  const int vw = caps.vector_floats, mr = rows_of_two_vectors(caps), nv = 2;
  const Operand input = channels_last_image(draft, x), gradient = channels_last_image(draft, dy);

  const int64_t pixels = typical(dy.sizes[0], 8) * typical(dy.sizes[2], 28) * typical(dy.sizes[3], 28);
  const auto [cb, kb, block, splits] = divide_weights(C, K, tiles, 4 * pixels * (C + K), caps.units);
  const int64_t pairs = parts(C, cb) * parts(K, kb),
                items = std::min<int64_t>(2 * static_cast<int64_t>(caps.units), splits * pairs);

  TemplateLaunch& launch = draft.launch();
  launch.kind = "conv_weight";
  launch.variant = "F(2,3) " + std::to_string(cb) + "x" + std::to_string(kb) + ", blocks of " + std::to_string(block) +
                   (splits > 1 ? ", " + std::to_string(splits) + " splits" : "");
  define_types(draft, launch, vw);
  define(launch, {{"MR", mr}, {"NV", nv}, {"CB", cb}, {"KB", kb}, {"TILE_BLOCK", block}});
  launch.buffers({{"x", input.input}, {"dy", gradient.input}, {"zeros", zero_row(draft, std::max(C, K))}});
  launch.scratch_elements = items * 16 * (block * (cb + kb) + cb * kb);
  launch.args({{"batch", x.sizes[0]}, {"C", C}, {"K", K}, {"splits", splits}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", dy.sizes[2]}, {"out_w", dy.sizes[3]}});
  launch.args({{"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}});
  pass_image(launch, "x", input, false);
  pass_image(launch, "dy", gradient, false);
  launch.groups = {items, 1, 1};
  store_along(launch, 1, vw);
  if (splits > 1) split_output(draft, splits, {2, 3, 0, 1});
}

}  // namespace ocl::schedule
