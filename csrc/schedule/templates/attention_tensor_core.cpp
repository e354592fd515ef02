// csrc/schedule/templates/attention_tensor_core.cpp: chooses tensor core kernels for attention and its gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "csrc/schedule/templates/attention_operands.h"
#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"
#include "csrc/schedule/templates/tensor_core_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

/// A tile: rows of a work-group (64 per consumer), columns of a step, and the size to which head sizes are padded.
struct AttentionTile {
  int pass;          // The kernel's macro PASS (see AttentionParts).
  int chunk, terms;  // See TensorCoreMath.
  int rows, columns, depth, stages;
  // The last product of a step runs during the softmax of the next step. That needs more registers.
  bool overlap;
  int resident;  // Work-groups that are resident on a compute unit.
  double rate;   // Rows per second on a full device, relative to the first tile with the same pass, chunk and terms.
  int warp_rows = 0;
  TensorCoreTile tile() const { return {rows, columns, rate, warp_rows, warp_rows == 0 ? 0 : columns}; }
};
// The rates of pass 0 are derived from measurements on an H200. The rates of gradients are estimates.
constexpr std::array<AttentionTile, 27> kTiles = {
    {{0, 8, 1, 128, 128, 64, 6, true, 1, 1.0},   {0, 8, 1, 192, 128, 64, 6, false, 1, 0.95},
     {0, 8, 1, 64, 128, 64, 6, false, 2, 0.9},   {0, 8, 1, 128, 64, 64, 8, true, 1, 0.85},
     {0, 8, 1, 128, 128, 128, 4, false, 1, 1.0}, {0, 8, 1, 128, 64, 128, 6, false, 1, 0.9},
     {0, 8, 1, 64, 128, 128, 4, false, 1, 0.65}, {0, 4, 3, 128, 64, 64, 4, false, 1, 1.0},
     {0, 4, 3, 64, 64, 64, 4, false, 1, 0.7},    {0, 4, 1, 192, 64, 64, 6, false, 1, 1.2},
     {0, 4, 1, 128, 64, 64, 6, false, 1, 1.0},   {0, 4, 1, 64, 64, 64, 6, false, 1, 0.65},
     {1, 8, 1, 128, 64, 64, 8, true, 1, 1.0},    {1, 8, 1, 64, 64, 64, 6, false, 2, 0.9},
     {1, 8, 1, 128, 64, 128, 6, false, 1, 1.0},  {1, 8, 1, 64, 64, 128, 6, false, 1, 0.6},
     {2, 8, 1, 128, 64, 64, 8, false, 1, 1.0},   {2, 8, 1, 64, 64, 64, 6, false, 1, 0.6},
     {2, 8, 1, 64, 64, 128, 6, false, 1, 1.0},   {1, 4, 3, 128, 64, 64, 5, false, 1, 1.0},
     {1, 4, 3, 64, 64, 64, 6, false, 1, 0.6},    {2, 4, 3, 128, 64, 64, 4, false, 1, 1.0},
     {2, 4, 3, 64, 64, 64, 5, false, 1, 0.6},    {1, 4, 1, 128, 64, 64, 9, false, 1, 1.0},
     {1, 4, 1, 64, 64, 64, 9, false, 1, 0.6},    {2, 4, 1, 128, 64, 64, 9, false, 1, 1.0},
     {2, 4, 1, 64, 64, 64, 9, false, 1, 0.6}}};
// Tiles of warp kernels. Their rates are estimates. `depth` is the largest head size; head sizes are padded to a
// multiple of 32. A warp with two blocks of 16 rows needs registers for the sums of both, but loads keys and values
// half as often.
constexpr std::array<AttentionTile, 23> kWarpTiles = {
    {{0, 8, 1, 128, 64, 64, 4, false, 2, 1.0, 32},  {0, 8, 1, 128, 64, 64, 4, false, 2, 0.85, 16},
     {0, 8, 1, 64, 64, 64, 4, false, 2, 0.8, 16},   {0, 8, 1, 128, 64, 128, 4, false, 2, 1.0, 16},
     {0, 8, 1, 64, 64, 128, 4, false, 2, 0.9, 16},  {0, 4, 3, 128, 64, 64, 4, false, 2, 1.0, 32},
     {0, 4, 3, 128, 64, 64, 4, false, 2, 0.9, 16},  {0, 4, 3, 64, 64, 64, 4, false, 2, 0.85, 16},
     {0, 4, 3, 64, 64, 128, 2, false, 1, 1.0, 16},  {0, 4, 1, 128, 64, 64, 4, false, 2, 1.0, 32},
     {0, 4, 1, 128, 64, 64, 4, false, 2, 0.85, 16}, {0, 4, 1, 64, 64, 64, 4, false, 2, 0.8, 16},
     {0, 4, 1, 64, 64, 128, 2, false, 1, 1.0, 16},  {1, 8, 1, 64, 64, 64, 3, false, 2, 1.0, 16},
     {1, 8, 1, 128, 64, 64, 3, false, 1, 0.95, 16}, {1, 8, 1, 64, 64, 128, 2, false, 1, 1.0, 16},
     {2, 8, 1, 64, 64, 64, 3, false, 2, 1.0, 16},   {2, 8, 1, 128, 64, 64, 3, false, 1, 0.95, 16},
     {2, 8, 1, 64, 64, 128, 2, false, 1, 1.0, 16},  {1, 4, 3, 64, 64, 64, 2, false, 2, 1.0, 16},
     {2, 4, 3, 64, 64, 64, 2, false, 2, 1.0, 16},   {1, 4, 1, 64, 64, 64, 2, false, 2, 1.0, 16},
     {2, 4, 1, 64, 64, 64, 2, false, 2, 1.0, 16}}};
// The cost of starting and ending a work-group, as the number of pairs (query, key) that take the same time: a
// constant, and a part for each row.
constexpr double kStartPairs = 12e3, kRowPairs = 200;

/// Returns the tile with the lowest cost, in full waves, for the scores of all batches and heads. Null if no tile
/// supports the head sizes.
const AttentionTile* choose_attention_tile(TemplateContext& context, const TensorCoreMath& math, const AttentionParts& parts) {
  const int64_t depth = std::max(parts.depth, parts.depth2), rows = typical(parts.rows(), 512);
  const int64_t columns = typical(parts.columns(), 512), others = typical(parts.batch, 8) * typical(parts.row_heads(), 8);
  const Caps& caps = context.caps;
  std::vector<std::pair<double, const AttentionTile*>> ranked;
  const bool warps = math.level == KernelLevel::k_warp;
  for (const AttentionTile& tile : warps ? std::span<const AttentionTile>(kWarpTiles) : kTiles) {
    if (tile.pass != parts.pass || tile.chunk != math.chunk || tile.terms != math.terms) continue;
    if (depth > tile.depth || (depth <= 64 && tile.depth > 64)) continue;
    const int64_t tiles = (rows + tile.rows - 1) / tile.rows * others;
    const int64_t steps = (columns + tile.columns - 1) / tile.columns;
    const double pairs = static_cast<double>(tile.rows * tile.columns * steps) / tile.rate;
    const double time = pairs + (kStartPairs + kRowPairs * tile.rows) / tile.resident;
    ranked.emplace_back(static_cast<double>((tiles + caps.units - 1) / caps.units) * time, &tile);
  }
  if (ranked.empty()) return nullptr;
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [time, tile] : ranked)
    if (names.size() < kMostOptions) names.push_back(tile->tile().name());
  return ranked[context.choices.pick("tile", names)].second;
}

}  // namespace

bool choose_attention_tensor_core(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  const auto found = attention_parts(context, node, 128);
  if (!found) return false;
  const AttentionParts& parts = *found;
  const bool gradient = parts.pass > 0;
  if (gradient != (kernel_row(context.kernel).operation == KernelOperation::k_attention_gradient)) return false;
  const auto math = tensor_core_math(context);
  if (!math || !(node.attention.scale > 0) || !std::isfinite(node.attention.scale)) return false;
  // Most of a tile would be empty, so another kernel is better.
  if (typical(parts.rows(), 512) < 24) return false;
  const AttentionTile* tile = choose_attention_tile(context, *math, parts);
  if (!tile) return false;
  const bool warps = math->level == KernelLevel::k_warp;

  launch = TemplateLaunch{};
  use_tensor_cores(context, launch, *math, tile->tile());
  if (!warps) define(launch, "OVERLAP", tile->overlap);
  define(launch, "TILE_C", tile->columns);
  define(launch, "DEPTH_TILE", warps ? (std::max(parts.depth, parts.depth2) + 31) / 32 * 32 : tile->depth);
  define(launch, "STAGES", tile->stages);
  if (gradient && math->chunk == 8 && !warps)
    define(launch, "LAG", tile->stages - 3);  // With overlap, a consumer holds one stage while it waits for another.
  define_attention(node, parts, launch);
  if (!gradient) launch.store_aligned = true;

  std::vector<IndexExpr> rows_of;
  using Named = std::pair<const char*, const ir::View*>;
  const std::vector<Named> operands =
      gradient ? std::vector<Named>{{"a", parts.a}, {"b", parts.b}, {"a2", parts.a2}, {"b2", parts.b2}}
               : std::vector<Named>{{"q", parts.a}, {"k", parts.b}, {"v", parts.w}};
  for (const auto& [name, view] : operands) {
    const Operand operand = attention_rows(context, *view, math->chunk);
    add_rows_arguments(launch, name, operand);
    for (int d = 0; d < 3; ++d)
      if (!view->sizes[d].is_const(1)) rows_of.push_back(operand.strides[d]);
  }
  define(launch, "DIRECT", multiples(context, math->chunk, rows_of));
  define_alignment(context, launch, math->chunk);
  if (gradient) add_statistics_arguments(context, parts, launch);
  add_mask_arguments(context, parts, launch);
  launch.groups = {ir::ceildiv(parts.rows(), tile->rows), parts.row_heads(), parts.batch};
  return true;
}

}  // namespace ocl::schedule
