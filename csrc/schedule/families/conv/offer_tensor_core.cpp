// csrc/schedule/families/conv/offer_tensor_core.cpp: offers tensor core kernels for convolution and its gradients.
#include <array>
#include <tuple>
#include <utility>

#include "csrc/schedule/families/conv/window.h"
#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {
namespace {

/// Returns the channels of a group in an image that channels_in_chunks() returns.
IndexExpr padded_channels(const Window& window, int chunk) {
  return window.groups.is_const(1) ? ir::ceildiv(window.C, chunk) * chunk : window.C;
}

/// Returns an image with contiguous channels whose number is a multiple of `chunk`: in place, or a copy padded with
/// zeros.
Operand channels_in_chunks(Draft& draft, const ir::View& x, int chunk) {
  const IndexExpr& channels = x.sizes[1];
  if (multiples(draft, chunk, {channels})) {
    const Operand image = channels_last_image(draft, x);
    if (multiples(draft, chunk, {image.strides[0], image.strides[2], image.strides[3]})) return image;
    return dense_copy(draft, x, kChannelsLast);
  }
  const IndexExpr padded = ir::ceildiv(channels, chunk) * chunk, c = IndexExpr::loop(3);
  const Operand copy = copied_operand(draft, x, {x.sizes[0], x.sizes[2], x.sizes[3], padded},
                                      {IndexExpr::loop(0), c, IndexExpr::loop(1), IndexExpr::loop(2)}, {{c, channels}});
  return {copy.input, {copy.strides[0], 1, copy.strides[1], copy.strides[2]}};
}

/// True if two neighbouring pixels fit into a chunk, and each step along a row of the image passes two. Then pairs of columns
/// are the pixels of a convolution with half as many columns, stride 1 and half as many taps in a row: a filter of 7 x 7 for
/// three channels has 28 taps with a chunk each in place of 49.
bool pairs_columns(const Window& window, int chunk) {
  return !window.data && window.groups.is_const(1) && window.C.is_const() && 2 * window.C.constant() <= chunk &&
         window.S.is_const() && window.S.constant() > 1 && window.attrs.stride[1] == 2 && window.attrs.dilation[1] == 1;
}

/// True if a copy of the filters may have them in any order, and results are stored in vectors of 16 bytes. Then their order
/// lets each lane store its own sums (ORDERED of kernels/tensor_core/store.cl).
bool orders_filters(const Draft& draft, const TensorCoreMath& math, const Window& window) {
  return math.level == KernelLevel::k_warpgroup && math.chunk == 8 && window.groups.is_const(1) &&
         multiples(draft, math.chunk, {window.K});
}

/// Returns the number of rows that a copy of the filters has, and the filter in row `row`.
IndexExpr filter_rows(const IndexExpr& filters, bool ordered) { return ordered ? ir::ceildiv(filters, 32) * 32 : filters; }
IndexExpr filter_in(const IndexExpr& row, bool ordered) {
  if (!ordered) return row;
  return ir::floordiv(row, 32) * 32 + ir::mod(ir::floordiv(row, 2), 4) * 8 + ir::mod(ir::floordiv(row, 8), 4) * 2 +
         ir::mod(row, 2);
}

/// Returns the image and the filters of such a convolution, and sets its sizes. An odd padding puts column -1 into the first
/// pair.
std::pair<Operand, Operand> paired_columns(Draft& draft, Window& window, int chunk, bool ordered) {
  const ir::View &x = draft.node().operands[0], &w = draft.node().operands[1];
  const int shift = window.attrs.padding[1] % 2;
  const IndexExpr first = IndexExpr::loop(0), row = IndexExpr::loop(1), pair = IndexExpr::loop(2), place = IndexExpr::loop(3);
  const IndexExpr c = ir::mod(place, chunk / 2), tap = pair * 2 + ir::floordiv(place, chunk / 2), column = tap - shift;
  window.in_w = ir::ceildiv(window.in_w + shift, 2);
  const Operand image = copied_operand(draft, x, {x.sizes[0], x.sizes[2], window.in_w, chunk}, {first, c, row, column},
                                       {{c, window.C}, {0, column + 1}, {column, x.sizes[3]}});
  const IndexExpr k = filter_in(first, ordered);
  const Operand filters =
      copied_operand(draft, w, {filter_rows(w.sizes[0], ordered), window.R, ir::ceildiv(window.S, 2), chunk}, {k, c, row, tap},
                     {{k, w.sizes[0]}, {c, window.C}, {tap, window.S}});
  window.S = ir::ceildiv(window.S, 2);
  window.attrs.stride[1] = 1;
  window.attrs.padding[1] = (window.attrs.padding[1] - shift) / 2;
  return {{image.input, {image.strides[0], 1, image.strides[1], image.strides[2]}}, filters};
}

/// Returns the filters [groups * K][R][S][depth], whose channels behind the C are zeros, in this order or ordered.
Operand padded_filters(Draft& draft, const Window& window, const IndexExpr& depth, bool ordered) {
  const IndexExpr k = filter_in(IndexExpr::loop(0), ordered), r = IndexExpr::loop(1), s = IndexExpr::loop(2),
                  c = IndexExpr::loop(3);
  std::vector<IndexExpr> from = {k, c, r, s};
  if (window.data) from = {ir::floordiv(k, window.K) * window.C + c, ir::mod(k, window.K), r, s};
  return copied_operand(draft, draft.node().operands[1],
                        {filter_rows(draft.node().sizes[1], ordered), window.R, window.S, depth}, from,
                        {{k, draft.node().sizes[1]}, {c, window.C}});
}

/// Chooses the number of slices of the sum over pixels. More slices fill the device, but each costs writing and adding
/// `results` elements. tiles: number of tiles of the result. Times are those of an H200; their ratios hold on other
/// devices too. The choice is the knob "splits".
int64_t choose_pixel_splits(Draft& draft, const TensorCoreMath& math, const TensorCoreTile& tile, int64_t tiles, int64_t pixels,
                            double results) {
  // Bytes per element of a slice: writing and reading it (8 bytes) runs at 4/7 of the rate of a copy.
  constexpr double kSliceBytes = 14;
  const Caps& caps = draft.caps;
  const int64_t most = std::clamp<int64_t>(pixels / 512, 1, 256);
  const double whole = 2.0 * static_cast<double>(pixels) * tile.rows * tile.columns / (math.flops * tile.rate);
  int64_t best = 1;
  double least = 0;
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t waves = (tiles * splits + caps.units - 1) / caps.units;
    const double time = whole * static_cast<double>(waves) / static_cast<double>(splits) +
                        (splits > 1 ? kSliceBytes * results * static_cast<double>(splits) / kMemoryBytesPerSecond : 0);
    if (splits > 1 && time >= least) continue;
    least = time;
    best = splits;
  }
  return draft.choices().pick("splits", {best, std::max<int64_t>(best / 2, 1), std::min(2 * best, most)});
}

double elements_of(const ir::Shape& sizes) {
  double elements = 1;
  for (const IndexExpr& size : sizes) elements *= static_cast<double>(typical(size, 64));
  return elements;
}

/// True if packing the filters saves more time than it costs. Knob "filters".
bool packs_filters(Draft& draft, const TensorCoreMath& math) {
  const ir::Node& node = draft.node();
  const ir::View &x = node.operands[0], &w = node.operands[1];
  // Number of elements that are each multiplied by all elements of one filter.
  const double made = elements_of(node.convolve.kind == ir::ConvolveKind::kData ? x.sizes : node.sizes);
  const double products = made * elements_of(w.sizes) / elements_of({w.sizes[0]});
  // With filters in place, the producers' work and the bandwidth of local memory limit the speed.
  const double element = 16.0 / math.chunk, in_place = 2 * products / (1.2 * math.product * draft.caps.units),
               packed = in_place / (math.terms == 3 ? 1.2 : 1.4),
               memory = (elements_of(node.sizes) + elements_of(x.sizes)) * element / kMemoryBytesPerSecond;
  const double saved = std::max(in_place, memory) - std::max(packed, memory);
  const double moved = is_kept(draft, w) ? 0 : elements_of(w.sizes) * element * (math.terms == 3 ? 3 : 2);
  std::vector<std::string> ways = {"packed", "in_place"};
  // Pack only if the saving exceeds the cost of packing by one launch. Short convolutions lose time waiting for whole
  // blocks.
  if (saved <= moved / kMemoryBytesPerSecond + kLaunchSeconds) std::swap(ways[0], ways[1]);
  if (products < static_cast<double>(kMinPackedProducts) && !draft.choices().exact()) ways = {"in_place"};
  return ways[draft.choices().pick("filters", ways)] == "packed";
}

/// Returns the filters [groups * K][R][S][C], packed in blocks as the second operand of each group's product.
TemplateLaunch::Input filter_blocks(Draft& draft, const Operand& filters, const IndexExpr& groups, const IndexExpr& K,
                                    int terms) {
  const IndexExpr group = IndexExpr::loop(0), d = IndexExpr::loop(1), k = IndexExpr::loop(2);
  const ir::Shape sizes = draft.buffer(filters.input.buffer).sizes;
  const IndexExpr S = sizes[2], C = sizes[3], depth = sizes[1] * S * C;
  ir::View view;
  view.buffer = filters.input.buffer;
  view.sizes = {groups, depth, K};
  view.coords = {group * K + k, ir::floordiv(d, S * C), ir::mod(ir::floordiv(d, C), S), ir::mod(d, C)};
  return packed_blocks(draft, view, {filters.input, K * depth, 0, 1, depth}, 1, ProductOperand::kB,
                       terms == 3 ? BlockForm::kSplitTf32 : BlockForm::kTf32)
      .input;
}

/// True if the pixels of the image that the convolution reads are those that it writes, and lie at equal distances. Then it is
/// a product of matrices.
bool is_product(const Draft& draft, const Window& window, const Operand& image) {
  const ir::ConvolveAttrs& attrs = draft.node().convolve;
  const ir::Shape& sizes = draft.node().operands[0].sizes;
  constexpr std::array<int, 2> none = {0, 0}, one = {1, 1};
  return window.R.is_const(1) && window.S.is_const(1) && window.groups.is_const(1) && attrs.stride == one &&
         attrs.padding == none && image.strides[2] == sizes[3] * image.strides[3] &&
         (sizes[0].is_const(1) || image.strides[0] == sizes[2] * image.strides[2]);
}

/// Lets a work-group keep the filters of its tiles in local memory where they fit, beside stages of pixels (B_STEPS of
/// kernels/tensor_core/warpgroup.cl), and returns whether they do. Copies of boxes are slow if their rows are short: an image
/// with 16 channels took as long for its filters as for its pixels.
bool keeps_filters(Draft& draft, const TensorCoreTile& tile, const IndexExpr& depth, int64_t filters) {
  constexpr int kRow = 128, kMostStages = 6;
  if (!tile.shares_unit() || !depth.is_const() || filters > draft.caps.units * tile.columns) return false;
  const int64_t steps = (depth.constant() * 2 + kRow - 1) / kRow,
                // A work-group also has barriers, a tensor map, and 1 KiB that the driver takes.
      stages = ((228 << 10) / tile.resident - 2048 - steps * tile.columns * kRow) / (tile.rows * kRow);
  if (stages < 3) return false;
  define(draft.launch(), {{"B_STEPS", steps}, {"KEPT_STAGES", std::min<int64_t>(stages, kMostStages)}});
  return true;
}

}  // namespace

void offer_conv_tensor_core(Draft& draft) {
  TensorCoreMath math = *tensor_core_math(draft);
  const ir::Node& node = draft.node();
  Window window(node);
  const IndexExpr& K = window.K;

  const IndexExpr depth = padded_channels(window, math.chunk);
  const bool ordered = orders_filters(draft, math, window);
  const auto [image, filters] =
      pairs_columns(window, math.chunk)
          ? paired_columns(draft, window, math.chunk, ordered)
          : std::pair{channels_in_chunks(draft, node.operands[0], math.chunk), padded_filters(draft, window, depth, ordered)};
  if (!is_product(draft, window, image)) math.forms.erase(KernelForm::k_boxes);
  std::vector<TensorCoreTile> offered = convolution_tiles(math, typical(depth, 64));
  // Where boxes are possible, producers of chunks are slower.
  if (math.has(KernelForm::k_boxes))
    std::erase_if(offered, [](const TensorCoreTile& tile) { return tile.images && !tile.in_boxes(); });
  TensorCoreTile tile = choose_tensor_core_tile(draft, offered, typical(window.pixels, 50176), typical(K, 64),
                                                node.convolve.groups * window.phases);

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  use_tensor_core_tile(draft, math, tile, K);
  // A panel of packed filters is 64, a step 8 chunks. With several phases, which each use only some of the taps, a step must
  // not contain chunks of two taps.
  const bool boxes = use_boxes(draft, math, tile);
  const bool packed = !boxes && math.has(KernelForm::k_packed) && tile.columns % 64 == 0 &&
                      (window.phases == 1 || multiples(draft, 8 * math.chunk, {depth})) && packs_filters(draft, math);
  if (packed) {
    define(launch, "B_PACKED", 1);
    launch.variant += ", filters packed";
  }
  if (tile.images && !boxes) define(launch, "RESIDENT", tile.resident);
  if (ordered) define(launch, "ORDERED", 1);
  if (ordered && K.is_const() && K.constant() % tile.columns == 0) define(launch, "WHOLE_COLUMNS", 1);
  if (math.level == KernelLevel::k_warpgroup && K.is_const() && K.constant() <= tile.columns) define(launch, "ONE_COLUMN", 1);
  define(launch, "DATA_GRADIENT", window.data);
  if (node.sizes[2].is_const() && node.sizes[3].is_const())
    define(launch, {{"OUT_H", node.sizes[2].constant()}, {"OUT_W", node.sizes[3].constant()}});
  // With fewer registers, producers that find the addresses of pixels spill at every step. On an H100, ResNet-50 in bf16
  // took 1.08 times as long with 56 registers (inference), and 1.03 times (training).
  if (tile.producer_registers > 0 && !boxes) {
    tile.consumer_registers -= (104 - tile.producer_registers) / 2;  // Of each of two consumers.
    tile.producer_registers = 104;
  }
  share_registers(launch, tile);
  launch.buffers(
      {{"x", image.input},
       {"w", packed ? filter_blocks(draft, filters, window.groups, filter_rows(K, ordered), math.terms) : filters.input}});
  define_alignment(draft, math.chunk);
  pass_sizes(draft, window, depth);
  pass_image(launch, "x", image);
  const IndexExpr columns = ir::ceildiv(K, tile.columns), tiles = ir::ceildiv(window.pixels, tile.rows) * columns;
  const bool kept = boxes && K.is_const() && keeps_filters(draft, tile, depth, K.constant());
  const auto whole = [&](const IndexExpr& groups) { return kept ? ir::floordiv(groups, columns) * columns : groups; };
  // Each phase of a strided data gradient has its own number of taps. So each tile gets a work-group, and the device
  // balances them.
  launch.groups = {window.phases > 1 ? tiles : whole(persistent_groups(draft.caps, tiles, tile, node.convolve.groups)),
                   window.groups, window.phases};
  store_along(launch, 1, launch.stores.width);
  launch.stores.align(node.convolve.groups == 1 || multiples(draft, launch.stores.width, {K}));
  draft.lay_out(node.outputs[0], kChannelsLast);
  // Warp kernels have no producers that run ahead. So, if they fit, two work-groups share a compute unit and overlap
  // their work.
  const int64_t at_once = resident_groups(draft.caps, tile) * (math.level == KernelLevel::k_warp ? 2 : 1);
  if (!window.data && math.has(KernelForm::k_statistics))
    launch.statistics = {
        kernel_of_form(launch.kernel, KernelForm::k_statistics), std::nullopt, window.pixels, tile.rows, tile.columns, at_once};
}

namespace {

/// Returns the tile for a weight gradient: the one that computes least outside of rows x columns. Slices fill the
/// device in any case, and at any tile's rate. For other kernels the choice is the knob "tile".
TensorCoreTile weight_tile(Draft& draft, const TensorCoreMath& math, int64_t rows, int64_t columns, int64_t groups) {
  if (math.level == KernelLevel::k_warpgroup)
    for (TensorCoreTile tile : tensor_core_tiles(math, false)) {
      if (tile.rows != (rows <= 64 ? 64 : 128) || tile.columns != (columns <= 64 ? 64 : 128)) continue;
      tile.rate = 1.0;
      return tile;
    }
  return choose_tensor_core_tile(draft, convolution_tiles(math), rows, columns, groups * draft.caps.units);
}

}  // namespace

void offer_conv_weight_tensor_core(Draft& draft) {
  const TensorCoreMath math = *tensor_core_math(draft);
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& attrs = node.convolve;
  const Window window(node);
  const ir::Shape& out = node.operands[1].sizes;
  const IndexExpr &C = window.C, &K = window.K, depth = padded_channels(window, math.chunk);
  const Operand image = channels_in_chunks(draft, node.operands[0], math.chunk),
                gradient = channels_in_chunks(draft, node.operands[1], math.chunk);
  const ir::Ranges ranges = draft.graph.ranges();
  const bool dense = ir::simplify(gradient.strides[3] * out[3], ranges) == gradient.strides[2] &&
                     ir::simplify(gradient.strides[2] * out[2], ranges) == gradient.strides[0];

  const int64_t rows = K.constant(), columns = typical(window.R * window.S * depth, 576),
                pixels = typical(window.pixels, 50176);
  TensorCoreTile tile = weight_tile(draft, math, rows, columns, attrs.groups);
  const int64_t wanted = choose_pixel_splits(draft, math, tile, count_tiles(tile, rows, columns, attrs.groups), pixels,
                                             static_cast<double>(rows) * static_cast<double>(columns));
  const PixelSlices slices = pixel_slices(window.pixels, wanted, 64);

  TemplateLaunch& launch = draft.launch();
  launch.kind = window.kind();
  // 32-bit operands of many columns need more producers, because these split and transpose them.
  const bool more = math.level == KernelLevel::k_warpgroup && math.chunk == 4 && tile.columns == 128;
  use_tensor_core_tile(draft, math, tile, C, more ? 256 : 128);
  if (more) define(launch, "PRODUCERS", 256);
  if (more && tile.rows == 128) std::tie(tile.producer_registers, tile.consumer_registers) = std::pair{80, 168};
  share_registers(launch, tile);
  launch.variant += in_slices(slices.count);
  define(launch, "DY_DENSE", dense);
  if (!multiples(draft, math.chunk, {C})) define(launch, "STORED_C", C.constant());
  launch.buffers({{"dy", gradient.input}, {"x", image.input}});
  define_alignment(draft, math.chunk);
  pass_sizes(draft, window, depth);
  launch.arg("split_pixels", slices.pixels);
  pass_image(launch, "dy", gradient);
  pass_image(launch, "x", image);
  launch.groups = {ir::ceildiv(window.R * window.S * depth, tile.columns) * ir::ceildiv(K, tile.rows), window.groups,
                   slices.count};
  store_along(launch, 1, launch.stores.width);
  store_slices(draft, slices.count);
}

}  // namespace ocl::schedule
