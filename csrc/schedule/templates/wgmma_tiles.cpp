// csrc/schedule/templates/wgmma_tiles.cpp: choice of a matrix-unit tile, and what its launch defines.
#include "csrc/schedule/templates/wgmma_tiles.h"

#include <algorithm>
#include <array>

namespace ocl::schedule {

using ir::IndexExpr;
namespace {

constexpr std::array<UnitTile, 4> kTiles = {{{128, 128, 1.0}, {128, 64, 0.73}, {64, 128, 0.7}, {64, 64, 0.69}}};
constexpr int kProducers = 128;

}  // namespace

bool takes_wgmma(const TemplateContext& context) {
  const ir::Node& node = context.graph.nodes[context.node];
  return context.caps.wgmma && std::all_of(node.operands.begin(), node.operands.end(), [&](const ir::View& view) {
           return context.graph.buffers[view.buffer].dtype == ir::DType::kF32;
         });
}

UnitTile choose_unit_tile(TemplateContext& context, int64_t rows, int64_t columns, int64_t others) {
  const Caps& caps = context.caps;
  std::vector<std::pair<double, UnitTile>> ranked;
  for (const UnitTile& tile : kTiles) {
    const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * others;
    const int64_t rounds = (tiles + caps.units - 1) / caps.units;
    const double time = static_cast<double>(rounds) * tile.rows * tile.columns / tile.rate;
    ranked.emplace_back(time, tile);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [time, tile] : ranked)
    if (names.size() < kMostOptions) names.push_back(std::to_string(tile.rows) + "x" + std::to_string(tile.columns));
  return ranked[context.choices.pick("tile", names)].second;
}

IndexExpr persistent_groups(const Caps& caps, const IndexExpr& tiles, const UnitTile& tile, const IndexExpr& others) {
  // Two of the small groups fit on a unit.
  const int64_t resident = caps.units * (tile.rows == 64 && tile.columns == 64 ? 2 : 1);
  return ir::min(tiles, ir::ceildiv(resident, others));
}

void use_unit_tile(const TemplateContext& context, TemplateLaunch& launch, const char* file, const UnitTile& tile) {
  const bool tf32 = context.graph.nodes[context.node].reduced_precision;
  launch.file = file;
  launch.library = "wgmma";
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(tile.columns) + (tf32 ? " tf32" : " split tf32");
  define_types(context, launch, 2);
  define(launch, "TILE_M", tile.rows);
  define(launch, "TILE_N", tile.columns);
  define(launch, "TERMS", tf32 ? 1 : 3);
  launch.local = {tile.rows / 64 * 128 + kProducers, 1, 1};
  launch.store_width = 2;
}

}  // namespace ocl::schedule
