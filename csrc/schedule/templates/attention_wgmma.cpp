// csrc/schedule/templates/attention_wgmma.cpp: attention on matrix units by kernels/attention_wgmma.cl.
#include <algorithm>
#include <array>
#include <cmath>

#include "csrc/schedule/templates/attention_operands.h"
#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"
#include "csrc/schedule/templates/wgmma_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

/// A group's queries, 64 a consumer, the keys of a step, and what head sizes are filled up to.
struct AttentionTile {
  int chunk, terms;  // of the operands: see UnitMath
  int rows, columns, depth, stages;
  bool overlap;  // a step's values are multiplied during the softmax of the next, where registers suffice
  int resident;  // groups on a compute unit
  double rate;   // queries a second relative to the first of its kind when the device is full: measured on an H200
};
constexpr std::array<AttentionTile, 12> kTiles = {{{8, 1, 128, 128, 64, 6, true, 1, 1.0},
                                                   {8, 1, 192, 128, 64, 6, false, 1, 0.95},
                                                   {8, 1, 64, 128, 64, 6, true, 2, 0.9},
                                                   {8, 1, 128, 64, 64, 8, true, 1, 0.85},
                                                   {8, 1, 128, 128, 128, 4, false, 1, 1.0},
                                                   {8, 1, 128, 64, 128, 6, false, 1, 0.9},
                                                   {8, 1, 64, 128, 128, 4, false, 1, 0.65},
                                                   {4, 3, 128, 64, 64, 4, false, 1, 1.0},
                                                   {4, 3, 64, 64, 64, 4, false, 1, 0.7},
                                                   {4, 1, 192, 64, 64, 6, false, 1, 1.2},
                                                   {4, 1, 128, 64, 64, 6, false, 1, 1.0},
                                                   {4, 1, 64, 64, 64, 6, false, 1, 0.65}}};
// Before its first step and after the last a group takes as long as for so many pairs of a query and a key: for itself, and for
// each query.
constexpr double kStartPairs = 12e3, kQueryPairs = 200;

/// The tile that finishes rows x columns of scores (times `others`) first: whole rounds over the compute units. Null: none is
/// for such head sizes.
const AttentionTile* choose_attention_tile(TemplateContext& context, const UnitMath& math, int64_t depth, int64_t rows,
                                           int64_t columns, int64_t others) {
  const Caps& caps = context.caps;
  std::vector<std::pair<double, const AttentionTile*>> ranked;
  for (const AttentionTile& tile : kTiles) {
    if (tile.chunk != math.chunk || tile.terms != math.terms || depth > tile.depth || (depth <= 64 && tile.depth > 64))
      continue;
    const int64_t tiles = (rows + tile.rows - 1) / tile.rows * others;
    const int64_t steps = (columns + tile.columns - 1) / tile.columns;
    const double pairs = static_cast<double>(tile.rows * tile.columns * steps) / tile.rate;
    const double time = pairs + (kStartPairs + kQueryPairs * tile.rows) / tile.resident;
    ranked.emplace_back(static_cast<double>((tiles + caps.units - 1) / caps.units) * time, &tile);
  }
  if (ranked.empty()) return nullptr;
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [time, tile] : ranked)
    if (names.size() < kMostOptions) names.push_back(std::to_string(tile->rows) + "x" + std::to_string(tile->columns));
  return ranked[context.choices.pick("tile", names)].second;
}

}  // namespace

bool choose_attention_wgmma(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  const auto found = attention_parts(context, node, 128);
  if (!found || found->pass != 0) return false;
  const AttentionParts& parts = *found;
  const auto math = attention_math(context);
  if (!math || node.attention.dropout > 0 || !(node.attention.scale > 0) || !std::isfinite(node.attention.scale)) return false;
  const int64_t rows = typical(parts.rows(), 512), others = typical(parts.batch, 8) * typical(parts.row_heads(), 8);
  if (rows < 24) return false;  // most of a tile would be empty
  const AttentionTile* tile =
      choose_attention_tile(context, *math, std::max(parts.depth, parts.depth2), rows, typical(parts.keys, 512), others);
  if (!tile) return false;

  launch = TemplateLaunch{};
  use_unit_kernel(context, launch, "attention_wgmma", *math, tile->rows, tile->columns);
  define(launch, "TILE_C", tile->columns);
  define(launch, "DEPTH_TILE", tile->depth);
  define(launch, "STAGES", tile->stages);
  define(launch, "OVERLAP", tile->overlap);
  define_attention(node, parts, launch);
  launch.store_aligned = true;

  std::vector<IndexExpr> strides, rows_of;
  for (const ir::View* view : {parts.a, parts.b, parts.w}) {
    const Operand operand = attention_rows(context, *view, math->chunk);
    launch.inputs.push_back(operand.input);
    strides.insert(strides.end(), operand.strides.begin(), operand.strides.begin() + 3);
    for (int d = 0; d < 3; ++d)
      if (!view->sizes[d].is_const(1)) rows_of.push_back(operand.strides[d]);
  }
  define(launch, "DIRECT", multiples(context, math->chunk, rows_of));
  define_alignment(context, launch, math->chunk);
  const std::vector<IndexExpr> of_mask = pass_mask(context, parts, launch);
  strides.insert(strides.end(), of_mask.begin(), of_mask.end());
  pass(launch, {}, strides);
  launch.groups = {ir::ceildiv(parts.rows(), tile->rows), parts.row_heads(), parts.batch};
  return true;
}

}  // namespace ocl::schedule
