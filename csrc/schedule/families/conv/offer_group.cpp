// csrc/schedule/families/conv/offer_group.cpp: offers kernels/conv/group.cl, convolution and its data gradient on GPUs,
// and kernels/conv/weight_group.cl, its weight gradient.
#include "csrc/schedule/families/conv/window.h"

namespace ocl::schedule {

namespace {

const std::vector<GroupTile> kTiles = {
#define GROUP_TILE(...) GroupTile{__VA_ARGS__},
#include "csrc/schedule/families/conv/tiles.def"
#undef GROUP_TILE
};
const std::vector<GroupTile> kWeightTiles = {
#define WEIGHT_GROUP_TILE(...) GroupTile{__VA_ARGS__},
#include "csrc/schedule/families/conv/tiles.def"
#undef WEIGHT_GROUP_TILE
};

/// True if the kernel may load four channels of an image at once.
bool in_quads(const Draft& draft, const Operand& image, const IndexExpr& channels) {
  return channels_contiguous(image) && multiples(draft, 4, {channels, image.strides[0], image.strides[2], image.strides[3]});
}

// A data gradient with few channels divides by the strides in each step.
constexpr int kDivisionRegisters = 8;

/// The tile of `among` for a convolution with few channels: narrow if there are few filters.
GroupTile flat_tile(const std::vector<GroupTile>& among, const IndexExpr& K) {
  const int columns = typical(K, 64) > 32 ? 64 : 32;
  const auto found = std::find_if(among.begin(), among.end(), [&](const GroupTile& tile) { return tile.columns == columns; });
  return found == among.end() ? among.front() : *found;
}

}  // namespace

void offer_conv_group(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const Window window(node);
  const IndexExpr &C = window.C, &K = window.K, &R = window.R, &S = window.S;

  // With few channels, steps run over the flattened (r, s, c), with any channel stride. Otherwise channels must be
  // contiguous, in place or in a copy.
  const bool flat = typical(C, 64) < 16;
  std::optional<Operand> image;
  if (flat) image = strided_operand(draft, x, kChannelsLast);
  if (!image) image = channels_last_image(draft, x);

  // The weight as [R][S][C][groups * K]. Forward, w is [groups*K, C, R, S]; in the gradient, w is [groups*C, K, R, S].
  const IndexExpr r = IndexExpr::loop(0), s = IndexExpr::loop(1), c = IndexExpr::loop(2), k = IndexExpr::loop(3);
  std::vector<IndexExpr> from = {k, c, r, s};
  if (window.data) from = {ir::floordiv(k, K) * C + c, ir::mod(k, K), r, s};
  const Operand weight = copied_operand(draft, w, {R, S, C, node.sizes[1]}, from);
  const int64_t depth = typical(R * S * C, 576);
  const std::vector<GroupTile> tiles = fitting_tiles(draft.caps, kTiles, depth, flat && window.data ? kDivisionRegisters : 0);
  const GroupTile tile = flat ? flat_tile(tiles, K)
                              : choose_group_tile(draft, tiles, typical(window.pixels, 50176), typical(K, 64),
                                                  node.convolve.groups * window.phases);

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  launch.variant = tile.name() + (flat ? " flat" : "");
  define_types(draft, launch, 4);
  use_tile(draft, tile, depth);
  define(launch, {{"DATA_GRADIENT", window.data}, {"FLAT", flat}});
  if (!flat) define(launch, "X_VEC4", multiples(draft, 4, {C, image->strides[0], image->strides[2], image->strides[3]}));
  define(launch, "W_VEC4", multiples(draft, 4, {K}));
  if (flat && constants({R, S, C}))
    define(launch, {{"FILTER_R", R.constant()}, {"FILTER_S", S.constant()}, {"FILTER_C", C.constant()}});
  launch.buffers({{"x", image->input}, {"w", weight.input}});
  define_alignment(draft);
  pass_sizes(draft, window, C);
  pass_image(launch, "x", *image);
  launch.groups = {ir::ceildiv(window.pixels, tile.rows) * ir::ceildiv(K, tile.columns), window.groups, window.phases};
  store_along(launch, 1, 4);
  launch.stores.align(node.convolve.groups == 1 || multiples(draft, 4, {K}));
  draft.lay_out(node.outputs[0], kChannelsLast);
}

void offer_conv_weight_group(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& attrs = node.convolve;
  const Window window(node);
  const IndexExpr &C = window.C, &K = window.K, &R = window.R, &S = window.S;
  const Operand x = any_image(draft, node.operands[0]), dy = any_image(draft, node.operands[1]);

  // Cut the pixels into enough slices to fill the device four times, but each long enough to be worth its partial
  // result.
  const int64_t rows = typical(K, 64), columns = typical(R * S * C, 576), pixels = typical(window.pixels, 50176);
  std::vector<GroupTile> weight_tiles = fitting_tiles(draft.caps, kWeightTiles, pixels);
  if (weight_tiles.size() > 1 && weight_tiles.back().rows < 64) weight_tiles.pop_back();
  if (rows <= 64) std::reverse(weight_tiles.begin(), weight_tiles.end());
  std::vector<std::string> names;
  for (const GroupTile& tile : weight_tiles) names.push_back(tile.name());
  const GroupTile tile = weight_tiles[draft.choices().pick("tile", names)];
  const int64_t tiles = count_tiles(tile, rows, columns, attrs.groups);
  const int64_t most = std::max<int64_t>(1, pixels / 256), full = std::min((4 * draft.caps.units + tiles - 1) / tiles, most);
  const int64_t wanted = draft.choices().pick("splits", {full, std::max<int64_t>(full / 2, 1), std::min(2 * full, most)});
  const PixelSlices slices = pixel_slices(window.pixels, wanted, 16);

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  launch.variant = tile.name() + in_slices(slices.count);
  define_types(draft, launch, 4);
  use_tile(draft, tile, pixels / slices.count);
  define(launch, {{"DY_VEC4", in_quads(draft, dy, K)}, {"X_VEC4", in_quads(draft, x, C)}});
  if (constants({R, S})) define(launch, {{"FILTER_R", R.constant()}, {"FILTER_S", S.constant()}});
  launch.buffers({{"dy", dy.input}, {"x", x.input}});
  define_alignment(draft);
  pass_sizes(draft, window, C);
  launch.arg("split_pixels", slices.pixels);
  pass_image(launch, "dy", dy);
  pass_image(launch, "x", x);
  launch.groups = {ir::ceildiv(R * S * C, tile.columns) * ir::ceildiv(K, tile.rows), window.groups, slices.count};
  store_along(launch, 1, 4);
  launch.stores.align(multiples(draft, 4, {C}));
  store_slices(draft, slices.count);
}

}  // namespace ocl::schedule
