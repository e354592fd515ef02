// csrc/schedule/families/depthwise/offer_group.cpp: offers kernels/depthwise/group.cl, depthwise convolution and its
// gradients on GPUs.
#include <algorithm>

#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

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
  define(launch, {{"OPERATION", 2}, {"ROWS", rows}, {"STRIP", strip}});
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
  launch.stores.align(multiples(draft, 4, {channels}));
  draft.lay_out(node.outputs[0], {0, 1, 2, 3});
  if (splits > 1) split_output(draft, splits, {2, 3, 1, 0});
}

/// The outputs that a work-item computes, along h and w. For the gradient, multiples of the strides.
struct Tile {
  int64_t tall, strip;
  std::string name() const { return std::to_string(tall) + "x" + std::to_string(strip); }
};

/// True if the tiles end where the output does.
bool covers(const Tile& tile, const ir::Shape& out, const ir::Ranges& ranges) {
  return ranges.known_divides(tile.tall, out[2]) && ranges.known_divides(tile.strip, out[3]);
}

/// Returns how many pixels a tile reads. R, S: the filter.
int64_t pixels_under(const Tile& tile, const ir::ConvolveAttrs& attrs, int64_t R, int64_t S) {
  const bool data = attrs.kind == ir::ConvolveKind::kData;
  const auto along = [&](int64_t outputs, int64_t taps, int64_t stride, int64_t dilation) {
    return data ? (outputs + stride - 2) / stride + (taps - 1) * dilation / stride + 1
                : (outputs - 1) * stride + (taps - 1) * dilation + 1;
  };
  return along(tile.tall, R, attrs.stride[0], attrs.dilation[0]) * along(tile.strip, S, attrs.stride[1], attrs.dilation[1]);
}

/// Compilers load all pixels of a tile first. With more pixels and outputs, too few work-items fit on a compute unit. The
/// smallest tile may have more, because without it rows of x are read more often.
constexpr int64_t kMostOfTile = 40, kMostOfSmallest = 56;

/// row: a tile that every device has the registers for, and of which others are multiples in height. Larger ones read rows and
/// columns of x less often. The first one that reaches nowhere beyond the output is taken.
Tile choose_tile(Draft& draft, const Tile& row, int64_t R, int64_t S) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& attrs = node.convolve;
  const bool data = attrs.kind == ir::ConvolveKind::kData;
  const ir::Ranges ranges = draft.graph.ranges();
  std::vector<Tile> tiles;
  for (const Tile& tile : {Tile{4, 4}, Tile{2, 4}, Tile{2, 2}, Tile{1, 7}}) {
    const int64_t most = tile.tall * tile.strip == 4 ? kMostOfSmallest : kMostOfTile;
    if (pixels_under(tile, attrs, R, S) + tile.tall * tile.strip <= most &&
        (!data || (tile.tall % attrs.stride[0] == 0 && tile.strip % attrs.stride[1] == 0)))
      tiles.push_back(tile);
  }
  std::ranges::stable_partition(tiles, [&](const Tile& tile) { return covers(tile, node.sizes, ranges); });
  tiles.push_back(row);
  std::vector<std::string> names;
  for (const Tile& tile : tiles) names.push_back(tile.name());
  return tiles[draft.choices().pick("tile", names)];
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
  const bool quads = read_as_quads(draft, image, channels);
  const Tile row = {data ? attrs.stride[0] : 1, strip};
  const Tile tile = quads && !few_registers(draft.caps) ? choose_tile(draft, row, R, S) : row;
  launch.variant = (data ? "data " : "forward ") + tile.name();
  define(launch, {{"OPERATION", data ? 1 : 0}, {"QUADS", quads}, {"TALL", tile.tall}, {"STRIP", tile.strip}});
  define(launch,
         {{"WHOLE_TILES", covers(tile, node.sizes, draft.graph.ranges())}, {"PHASE_H", attrs.padding[0] % attrs.stride[0]}});
  define(launch, "PHASE_W", attrs.padding[1] % attrs.stride[1]);
  const std::pair<const char*, IndexExpr> sizes[] = {
      {"CHANNELS", channels}, {"X_H", image.strides[2]}, {"X_W", image.strides[3]}};
  for (const auto& [name, size] : sizes)
    if (size.is_const()) define(launch, name, size.constant());
  launch.buffers({{"x", image.input}, {"w", packed.input}});
  define_alignment(draft);
  pass_sizes(draft, node.sizes);
  pass_image(launch, "x", image);
  launch.groups = {ir::ceildiv(ir::ceildiv(channels, 4) * ir::ceildiv(node.sizes[3], tile.strip), 128),
                   ir::ceildiv(node.sizes[2], tile.tall), node.sizes[0]};
  launch.local = {128, 1, 1};
  store_along(launch, 1, 4);
  launch.stores.align(multiples(draft, 4, {channels}));
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
  define(launch, {{"DILATION_H", attrs.dilation[0]}, {"DILATION_W", attrs.dilation[1]}});
  (weight ? offer_weight : offer_pixels)(draft, R, S, strip);
}

}  // namespace ocl::schedule
