// csrc/schedule/templates/tensor_core_tiles.cpp: chooses a tile for tensor cores and sets the macros of its launch.
#include "csrc/schedule/templates/tensor_core_tiles.h"

#include <algorithm>
#include <array>
#include <span>

#include "csrc/schedule/templates/group_tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;
namespace {

// The rates of kTiles (32-bit operands) were measured on an H200. The rates of kHalfTiles (16-bit operands) are
// estimated from the bytes that a tile moves per product.
constexpr std::array<TensorCoreTile, 4> kTiles = {{{128, 128, 1.0}, {128, 64, 0.73}, {64, 128, 0.7}, {64, 64, 0.69}}};
constexpr std::array<TensorCoreTile, 5> kHalfTiles = {
    {{128, 256, 1.2}, {128, 128, 1.0}, {128, 64, 0.73}, {64, 128, 0.65}, {64, 64, 0.6}}};
// Packed operands. An H200 reaches 1.55 for split TF32, 2.1 for bf16 and 3.3 for TF32 with the largest tiles, for
// matrices of 4096 x 4096. The other rates are estimates.
constexpr std::array<TensorCoreTile, 4> kPackedSplitTiles = {{{128, 128, 1.5}, {128, 64, 1.15}, {64, 128, 1.1}, {64, 64, 0.9}}};
constexpr std::array<TensorCoreTile, 2> kPackedTf32Tiles = {{{128, 256, 3.2}, {128, 128, 2.4}}};
constexpr std::array<TensorCoreTile, 2> kPackedHalfTiles = {{{128, 256, 2.05}, {128, 128, 1.6}}};
// Tiles of warp kernels; their rates are estimates. Split TF32 also needs registers for the high and low parts, and for
// the sum of 8 products.
constexpr std::array<TensorCoreTile, 5> kWarpSplitTiles = {{{128, 128, 1.0, 64, 32},
                                                            {128, 128, 0.97, 64, 64},
                                                            {128, 64, 0.85, 64, 32},
                                                            {64, 128, 0.8, 32, 64},
                                                            {64, 64, 0.7, 32, 32}}};
constexpr std::array<TensorCoreTile, 5> kWarpTiles = {{{128, 128, 1.0, 64, 64},
                                                       {128, 128, 0.95, 64, 32},
                                                       {128, 64, 0.75, 64, 32},
                                                       {64, 128, 0.7, 32, 64},
                                                       {64, 64, 0.6, 32, 32}}};

}  // namespace

std::optional<TensorCoreMath> tensor_core_math(const TemplateContext& context) {
  const ir::Node& node = context.graph.nodes[context.node];
  const ir::DType type = context.graph.buffers[node.operands[0].buffer].dtype;
  // The other operands of attention (statistics, mask, random state) may have any dtype.
  const size_t operands = node.kind != ir::NodeKind::kAttention                ? node.operands.size()
                          : node.attention.kind == ir::AttentionKind::kForward ? 3
                                                                               : 4;
  for (size_t i = 0; i < operands; ++i)
    if (context.graph.buffers[node.operands[i].buffer].dtype != type) return std::nullopt;
  struct Row {
    ir::DType type;
    TensorCoreMath math;
  };
  // TF32 is first. If it is not allowed, float32 is multiplied by split TF32. The rates of warp kernels are estimates.
  constexpr KernelLevel kWarpgroup = KernelLevel::k_warpgroup, kWarp = KernelLevel::k_warp;
  static const std::array<Row, 8> rows = {
      {{ir::DType::kF32, {KernelType::kTf32, kWarpgroup, "tf32", 1, 4, 1.5e12, 1e12}},
       {ir::DType::kF32, {KernelType::kFp32, kWarpgroup, "split tf32", 3, 4, 0.6e12, 0.65e12}},
       {ir::DType::kBF16, {KernelType::kBf16, kWarpgroup, "bf16", 1, 8, 4e12, 2.65e12}},
       {ir::DType::kF16, {KernelType::kFp16, kWarpgroup, "f16", 1, 8, 4e12, 2.65e12}},
       {ir::DType::kF32, {KernelType::kTf32, kWarp, "tf32", 1, 4, 1e12, 1e12}},
       {ir::DType::kF32, {KernelType::kFp32, kWarp, "split tf32", 3, 4, 0.5e12, 0.5e12}},
       {ir::DType::kBF16, {KernelType::kBf16, kWarp, "bf16", 1, 8, 2.5e12, 2.5e12}},
       {ir::DType::kF16, {KernelType::kFp16, kWarp, "f16", 1, 8, 2.5e12, 2.5e12}}}};
  const KernelRow& kernel = kernel_row(context.kernel);
  for (const Row& row : rows) {
    if (row.type != type || row.math.level != kernel.level || !context.caps.kernels.has(kernel.base, row.math.type)) continue;
    if (row.math.type == KernelType::kTf32 && !node.reduced_precision) continue;
    TensorCoreMath math = row.math;
    math.wide = allows_variant(
        context, math, node.kind == ir::NodeKind::kContract ? KernelOperation::k_gemm_wide : KernelOperation::k_conv_wide);
    return math;
  }
  return std::nullopt;
}

bool allows_variant(const TemplateContext& context, const TensorCoreMath& math, KernelOperation form) {
  for (const KernelRow& row : kernel_rows())
    if (row.operation == form && row.level == math.level) return context.caps.kernels.has(row.id, math.type);
  return false;
}

std::string TensorCoreTile::name() const {
  const std::string tile = std::to_string(rows) + "x" + std::to_string(columns);
  return warp_rows == 0 ? tile : tile + "/" + std::to_string(warp_rows) + "x" + std::to_string(warp_columns);
}

std::vector<TensorCoreTile> tensor_core_tiles(const TensorCoreMath& math, bool packed) {
  using Tiles = std::span<const TensorCoreTile>;
  const bool halves = math.chunk == 8;
  const Tiles of_warps = math.terms == 3 ? Tiles(kWarpSplitTiles) : Tiles(kWarpTiles);
  const Tiles all = math.level == KernelLevel::k_warp ? of_warps
                    : !packed                         ? (halves ? Tiles(kHalfTiles) : Tiles(kTiles))
                    : halves                          ? Tiles(kPackedHalfTiles)
                                                      : (math.terms == 3 ? Tiles(kPackedSplitTiles) : Tiles(kPackedTf32Tiles));
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : all)
    if (tile.columns <= 128 || math.wide || !halves) tiles.push_back(tile);
  return tiles;
}

int weight_producers(int chunk, const TensorCoreTile& tile) {
  return tile.warp_rows == 0 && chunk == 4 && tile.columns == 128 ? 256 : 128;
}

double tile_cost(const Caps& caps, const TensorCoreTile& tile, int64_t rows, int64_t columns, int64_t others) {
  const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * others;
  const int64_t waves = (tiles + caps.units - 1) / caps.units;
  return static_cast<double>(waves) * tile.rows * tile.columns / tile.rate;
}

ProductSizes product_sizes(const ir::Node& node) {
  return {typical(node.sizes[1], 512), typical(node.sizes[2], 512), typical(node.reduce_sizes[0], 512),
          typical(node.sizes[0], 8), constants(node.sizes) && constants(node.reduce_sizes)};
}

namespace {

// Fewest elements of the inner dimension in a slice.
constexpr int64_t kMinSliceDepth = 256;

bool splits_into(const ProductSizes& problem, int64_t splits, int chunk) {
  if (splits == 1) return true;
  return problem.fixed && problem.depth % (splits * chunk) == 0 && problem.depth / splits >= kMinSliceDepth;
}

/// Returns the estimated time in seconds: full waves of tiles, then the sum of the slices.
double seconds_of(const Caps& caps, const TensorCoreMath& math, const TensorCoreTile& tile, const ProductSizes& p,
                  int64_t splits) {
  const int64_t step = 8 * math.chunk, steps = (p.depth / splits + step - 1) / step;
  const double products =
      tile_cost(caps, tile, p.rows, p.columns, p.batches * splits) * 2 * static_cast<double>(steps * step) / math.product;
  if (splits == 1) return products;
  const double part = 4.0 * static_cast<double>(p.rows) * static_cast<double>(p.columns) * static_cast<double>(p.batches);
  // With slices, the kernel cannot run the epilogue. So the epilogue costs another pass over the result.
  return products + 2 * static_cast<double>(splits + 1) * part / caps.memory_bytes_per_second + caps.launch_seconds;
}

}  // namespace

std::vector<TilePlan> tile_plans(const Caps& caps, const TensorCoreMath& math, const ProductSizes& problem, bool packed) {
  std::vector<TilePlan> ways;
  for (const TensorCoreTile& tile : tensor_core_tiles(math, packed)) {
    TilePlan best{tile, 1, seconds_of(caps, math, tile, problem, 1)};
    for (int64_t splits = 2; splits <= 64; ++splits) {
      if (!splits_into(problem, splits, math.chunk)) continue;
      const double seconds = seconds_of(caps, math, tile, problem, splits);
      if (seconds < best.seconds) best = {tile, splits, seconds};
    }
    ways.push_back(best);
  }
  std::stable_sort(ways.begin(), ways.end(), [](const TilePlan& a, const TilePlan& b) { return a.seconds < b.seconds; });
  return ways;
}

TilePlan choose_tile_plan(TemplateContext& context, const TensorCoreMath& math, const ProductSizes& problem, bool packed) {
  const std::vector<TilePlan> ways = tile_plans(context.caps, math, problem, packed);
  std::vector<std::string> names;
  for (const TilePlan& way : ways)
    if (names.size() < kMostOptions) names.push_back(way.tile.name());
  TilePlan way = ways[context.choices.pick("tile", names)];
  std::vector<int64_t> splits = {way.splits};
  int64_t more = way.splits + 1;
  while (more <= 64 && !splits_into(problem, more, math.chunk)) ++more;
  if (way.splits > 1) splits.push_back(1);
  if (more <= 64) splits.push_back(more);
  if (problem.fixed) way.splits = context.choices.pick("splits", splits);
  return way;
}

TensorCoreTile choose_tensor_core_tile(TemplateContext& context, const std::vector<TensorCoreTile>& tiles, int64_t rows,
                                       int64_t columns, int64_t others) {
  std::vector<std::pair<double, TensorCoreTile>> ranked;
  for (const TensorCoreTile& tile : tiles) ranked.emplace_back(tile_cost(context.caps, tile, rows, columns, others), tile);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [time, tile] : ranked)
    if (names.size() < kMostOptions) names.push_back(tile.name());
  return ranked[context.choices.pick("tile", names)].second;
}

int64_t resident_groups(const Caps& caps, const TensorCoreTile& tile) {
  // Two of the smallest work-groups fit on a compute unit.
  return caps.units * (tile.rows == 64 && tile.columns == 64 ? 2 : 1);
}

IndexExpr persistent_groups(const Caps& caps, const IndexExpr& tiles, const TensorCoreTile& tile, const IndexExpr& others) {
  if (tile.warp_rows != 0) return tiles;
  const int64_t resident = resident_groups(caps, tile);
  if (!tiles.is_const() || !others.is_const()) return ir::min(tiles, ir::max(ir::floordiv(resident, others), 1));
  // If there were more work-groups than are resident, the last ones would wait until others have computed all their
  // tiles.
  const auto waves = [&](int64_t groups) {
    return ((tiles.constant() + groups - 1) / groups) * ((groups * others.constant() + resident - 1) / resident);
  };
  int64_t best = 1;
  for (int64_t groups = 2; groups <= std::min(tiles.constant(), resident); ++groups)
    if (waves(groups) <= waves(best)) best = groups;
  return best;
}

void use_tensor_cores(const TemplateContext& context, TemplateLaunch& launch, const TensorCoreMath& math,
                      const TensorCoreTile& tile, int producers, int store_width) {
  launch.kernel = context.kernel;
  launch.variant = tile.name() + " " + math.name;
  define_types(context, launch, store_width);
  define(launch, "TILE_M", tile.rows);
  define(launch, "TILE_N", tile.columns);
  define(launch, "TERMS", math.terms);
  launch.local = {tile.rows / 64 * 128 + producers, 1, 1};
  launch.store_width = store_width;
  if (math.level != KernelLevel::k_warp) return;
  define(launch, "WARP_M", tile.warp_rows);
  define(launch, "WARP_N", tile.warp_columns);
  launch.local = {tile.rows / tile.warp_rows * (tile.columns / tile.warp_columns) * 32, 1, 1};
}

void use_tensor_core_tile(const TemplateContext& context, TemplateLaunch& launch, const TensorCoreMath& math,
                          const TensorCoreTile& tile, const IndexExpr& columns, int producers) {
  const int store_width = multiples(context, math.chunk, {columns}) ? math.chunk : 2;
  use_tensor_cores(context, launch, math, tile, producers, store_width);
  launch.store_aligned = true;
}

}  // namespace ocl::schedule
