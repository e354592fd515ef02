// csrc/schedule/families/conv/offer_item.cpp: offers kernels/conv/item.cl, convolution and its data gradient on CPUs, for
// any groups.
#include <array>
#include <utility>

#include "csrc/schedule/families/conv/window.h"

namespace ocl::schedule {

namespace {

constexpr int64_t kFiltersInCache = 512 << 10;  // Bytes of filters that stay in the L2 cache of a CPU's core.
constexpr int64_t kPanelBytes = 32 << 10;       // Bytes of filters that a work-item uses for each of its tiles of pixels.

/// Returns the most tiles of a work-item for sums of `depth` products. With short sums, starting a work-item would take
/// a large part of its time.
int tiles_for_depth(int64_t depth) { return depth < 64 ? 32 : depth <= 256 ? 16 : 8; }

/// Returns how many of `all` panels a work-item computes for each tile of pixels. They share what finding the pixels costs,
/// which is much where sums are short. bytes: of a panel's filters. most: with which enough work-items are left.
int64_t panels_of_item(const Window& window, int64_t all, int64_t bytes, int64_t most) {
  const ir::ConvolveAttrs& conv = window.attrs;
  const bool one_tap = window.R.is_const(1) && window.S.is_const(1), strided = conv.stride[0] * conv.stride[1] > 1;
  if (!one_tap || (window.data && strided)) return 1;
  const int64_t fits = std::clamp<int64_t>(std::min(kPanelBytes / bytes, most), 1, all), items = (all + fits - 1) / fits;
  return (all + items - 1) / items;
}

/// Returns the filters as zero-padded panels [group][panel][R][S][C / step][width][step]. step: 2 for pairs of channels.
Operand filter_panels(Draft& draft, const ir::View& w, const ir::ConvolveAttrs& conv, int64_t C, int64_t K, int width,
                      int step) {
  const IndexExpr group = IndexExpr::loop(0), k = IndexExpr::loop(1) * width + IndexExpr::loop(5), r = IndexExpr::loop(2);
  const IndexExpr s = IndexExpr::loop(3), c = IndexExpr::loop(4) * step + (step > 1 ? IndexExpr::loop(6) : 0);
  ir::Shape sizes = {conv.groups, ir::ceildiv(K, width), w.sizes[2], w.sizes[3], C / step, width};
  if (step > 1) sizes.emplace_back(step);
  if (conv.kind == ir::ConvolveKind::kData) return copied_operand(draft, w, sizes, {group * C + c, k, r, s}, {{k, K}});
  return copied_operand(draft, w, sizes, {group * K + k, c, r, s}, {{k, K}});
}

}  // namespace

void offer_conv_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& conv = node.convolve;
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const Window window(node);
  const bool gradient = window.data;
  const IndexExpr &R = window.R, &S = window.S;
  const Caps& caps = draft.caps;
  const int vw = caps.vector_floats;
  const int64_t C = window.C.constant(), K = window.K.constant();

  const Operand image = channels_last_image(draft, x);
  const int64_t taps = R.constant() * S.constant();

  const ItemTile tile = choose_item_tile(draft, 6 * 8 * 49, K);
  const int width = tile.vectors * vw;
  const bool pairs = draft.buffer(x.buffer).dtype == ir::DType::kBF16 && vw == 16 && C % 2 == 0 &&
                     caps.kernels.has(KernelId::k_gemm_pairs_item, KernelType::kBf16);
  const Operand packed = filter_panels(draft, w, conv, C, K, width, pairs ? 2 : 1);
  draft.lay_out(node.outputs[0], kChannelsLast);

  const IndexExpr& pixels = window.pixels;
  const int64_t typical_pixels = typical(pixels, 6272), all = (K + width - 1) / width;
  const int64_t of_item = panels_of_item(window, all, C * width * ir::size_bytes(draft.buffer(x.buffer).dtype),
                                         typical_pixels / tile.rows * all * conv.groups / (4 * caps.units));
  const int64_t panels = (all + of_item - 1) / of_item * conv.groups * window.phases;
  const int most_tiles = std::max(tiles_for_depth(taps * C), typical_pixels > 1000000 ? 16 : 8);
  const int mt = choose_tiles_per_item(draft, (typical_pixels + tile.rows - 1) / tile.rows, panels, most_tiles);

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + (pairs ? " pairs of channels" : " channels");
  define(launch, "PAIRS", pairs);
  define_types(draft, launch, vw);
  define(launch, {{"MR", tile.rows}, {"NV", tile.vectors}, {"MT", mt}, {"PANELS", of_item}});
  define(launch, {{"DATA_GRADIENT", gradient}, {"WHOLE_VECTORS", K % vw == 0}});
  launch.buffers({{"x", image.input}, {"w", packed.input}, {"zeros", zero_row(draft, C)}});
  const int64_t most_taps = std::clamp<int64_t>(640 / C, 1, taps), tap_blocks = (taps + most_taps - 1) / most_taps;
  launch.args({{"batch", node.sizes[0]}, {"C", C}, {"K", K}, {"groups", conv.groups}, {"R", R}, {"S", S}});
  launch.args({{"in_h", window.in_h}, {"in_w", window.in_w}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
  pass_window(launch, conv);
  launch.arg("tap_block", (taps + tap_blocks - 1) / tap_blocks);
  pass_image(launch, "x", image);
  const IndexExpr slices = ir::ceildiv(pixels, tile.rows * mt);
  launch.groups = {slices, ir::ceildiv(K, width * of_item) * conv.groups, window.phases};
  // Work-items start in the order of the first dimension of the grid. If the caches keep all filters, this dimension is
  // the channels, so that all channels of a pixel are written one after the other.
  const bool channels_first = C * K * R.constant() * S.constant() * 4 <= kFiltersInCache;
  define(launch, "CHANNELS_FIRST", channels_first);
  if (channels_first) std::swap(launch.groups[0], launch.groups[1]);
  launch.stores.prefetch = caps.prefetch;
  define(launch, "PREFETCHES", caps.prefetch);
  store_along(launch, 1, vw);
  // Only long sums get statistics. With shorter sums, the statistics would take a tenth of the kernel's time.
  if (!gradient && taps * C >= 64 && draft.buffer(node.outputs[0]).dtype == ir::DType::kF32 &&
      caps.kernels.has(KernelId::k_conv_statistics_item))
    launch.statistics.kernel = KernelId::k_conv_statistics_item;
  launch.statistics.slices = slices;
}

}  // namespace ocl::schedule
