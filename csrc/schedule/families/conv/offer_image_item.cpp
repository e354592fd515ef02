// csrc/schedule/families/conv/offer_image_item.cpp: offers kernels/conv/image_item.cl, convolution of images with few channels
// on CPUs.
#include "csrc/schedule/families/conv/window.h"

namespace ocl::schedule {

namespace {

#define IMAGE_TILE(...) ItemTile{__VA_ARGS__},
const std::vector<ItemTile> kImageTiles = {
#include "csrc/schedule/families/conv/tiles.def"
};
#undef IMAGE_TILE
constexpr int64_t kLineBytes = 48 << 10;  // Of the copies of a strip, which should stay in the L1 cache.

/// Returns the filters as zero-padded panels [panel][R][C][S][width], or [panel][R][S][C][width].
Operand filter_lines(Draft& draft, const ir::View& w, int64_t K, int width, bool planes) {
  const IndexExpr k = IndexExpr::loop(0) * width + IndexExpr::loop(4), r = IndexExpr::loop(1);
  const IndexExpr c = IndexExpr::loop(planes ? 2 : 3), s = IndexExpr::loop(planes ? 3 : 2);
  const ir::Shape sizes = {ir::ceildiv(K, width), w.sizes[2], w.sizes[planes ? 1 : 3], w.sizes[planes ? 3 : 1], width};
  return copied_operand(draft, w, sizes, {k, c, r, s}, {{k, K}});
}

}  // namespace

void offer_conv_image_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& conv = node.convolve;
  const Window window(node);
  const int vw = draft.caps.vector_floats;
  const int64_t C = window.C.constant(), K = window.K.constant(), R = window.R.constant(), S = window.S.constant();
  const Operand image = any_image(draft, node.operands[0]);
  const bool planes = !(image.strides[1].is_const(1) && image.strides[3].is_const(C));

  const int64_t columns = typical(node.sizes[3], 112);
  const ItemTile tile = choose_item_tile(draft, columns, K, kImageTiles);
  const int width = tile.vectors * vw;
  const Operand packed = filter_lines(draft, node.operands[1], K, width, planes);
  draft.lay_out(node.outputs[0], kChannelsLast);

  // A row of y is one strip, unless its lines take too many bytes.
  const int64_t tiles = (columns + tile.rows - 1) / tile.rows, tile_bytes = 4 * R * C * tile.rows * conv.stride[1];
  const int64_t parts = (tiles * tile_bytes + kLineBytes - 1) / kLineBytes, mt = (tiles + parts - 1) / parts;
  const IndexExpr strips = node.sizes[0] * node.sizes[2] * ir::ceildiv(node.sizes[3], tile.rows * mt);
  const IndexExpr panels = ir::ceildiv(K, width);
  const int run = choose_tiles_per_item(draft, typical(strips, 112), panels.constant(), 8);

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + (planes ? " planes" : " pixels");
  define_types(draft, launch, vw);
  define(launch, {{"MR", tile.rows}, {"NV", tile.vectors}, {"MT", mt}, {"C", C}, {"R", R}, {"S", S}});
  define(launch, {{"STRIDE_W", conv.stride[1]}, {"PLANES", planes}, {"WHOLE_VECTORS", K % vw == 0}});
  launch.buffers({{"x", image.input}, {"w", packed.input}});
  launch.args({{"batch", node.sizes[0]}, {"in_h", window.in_h}, {"in_w", window.in_w}, {"K", K}});
  launch.args({{"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}, {"stride_h", conv.stride[0]}});
  launch.args({{"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}, {"dilation_h", conv.dilation[0]}});
  launch.arg("strips_per_item", run);
  pass_image(launch, "x", image);
  const IndexExpr slices = ir::ceildiv(strips, run);
  launch.groups = {panels, slices, 1};
  store_along(launch, 1, vw);
  // Only long sums get statistics. With shorter sums, the statistics would take a tenth of the kernel's time.
  if (C * R * S >= 64 && draft.buffer(node.outputs[0]).dtype == ir::DType::kF32 &&
      draft.caps.kernels.has(KernelId::k_conv_image_statistics_item))
    launch.statistics.kernel = KernelId::k_conv_image_statistics_item;
  launch.statistics.slices = slices;
}

}  // namespace ocl::schedule
