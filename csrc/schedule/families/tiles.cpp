// csrc/schedule/families/tiles.cpp: chooses tiles of the portable kernels.
#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;

namespace {

constexpr int kTileDepth = 16;  // Inner-dimension elements of one step.
// Inner-dimension elements of one running sum. The error is then below twice that of libraries that sum in blocks.
constexpr int kSumDepth = 256;

#define ITEM_TILE(...) ItemTile{__VA_ARGS__},
constexpr ItemTile kItemTiles[] = {
#include "csrc/schedule/families/tiles.def"
};
#undef ITEM_TILE

}  // namespace

int64_t typical(const IndexExpr& e, int64_t otherwise) { return e.is_const() ? e.constant() : otherwise; }

bool constants(const std::vector<IndexExpr>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const IndexExpr& e) { return e.is_const(); });
}

std::string in_slices(int64_t splits) { return splits > 1 ? " in " + std::to_string(splits) + " slices" : ""; }

ItemTile choose_item_tile(Draft& draft, int64_t rows, int64_t columns) {
  const int vector_floats = draft.caps.vector_floats, registers = vector_floats == 8 ? 16 : 32;
  std::vector<std::pair<double, ItemTile>> ranked;
  for (const ItemTile& tile : kItemTiles) {
    if (tile.registers != registers) continue;
    const int64_t width = static_cast<int64_t>(tile.vectors) * vector_floats;
    const int64_t area = (rows + tile.rows - 1) / tile.rows * tile.rows * ((columns + width - 1) / width * width);
    ranked.emplace_back(static_cast<double>(area) * tile.cost, tile);
  }
  return pick_tile(draft.choices(), std::move(ranked));
}

int choose_tiles_per_item(Draft& draft, int64_t tiles, int64_t other_items, int max_tiles) {
  int run = max_tiles;
  while (run > 1 && (tiles + run - 1) / run * other_items < 4 * static_cast<int64_t>(draft.caps.units)) run /= 2;
  return static_cast<int>(draft.choices().pick("run", {run, std::max(run / 2, 1), std::min(run * 2, max_tiles)}));
}

GroupTile choose_group_tile(Draft& draft, const std::vector<GroupTile>& among, int64_t rows, int64_t columns, int64_t others) {
  const Caps& caps = draft.caps;
  std::vector<std::pair<double, GroupTile>> ranked;
  for (const GroupTile& tile : among)
    // The two staged tiles must fit into local memory.
    if (tile.items() <= caps.max_group_size && 2 * 16 * (tile.rows + tile.columns + 8) * 4 <= caps.local_bytes)
      ranked.emplace_back(tile_cost(caps, tile, rows, columns, others), tile);
  return ranked.empty() ? among.front() : pick_tile(draft.choices(), std::move(ranked));
}

void use_tile(TemplateLaunch& launch, const GroupTile& tile, int64_t depth) {
  define(launch, "TILE_M", tile.rows);
  define(launch, "TILE_N", tile.columns);
  define(launch, "TILE_K", kTileDepth);
  // A second set of sums costs registers, so short sums have one set.
  define(launch, "SUM_STEPS", depth > 3 * kSumDepth ? kSumDepth / kTileDepth : 0);
  define(launch, "ITEM_M", tile.item_rows);
  define(launch, "ITEM_N", tile.item_columns);
  launch.local = {tile.items(), 1, 1};
}

}  // namespace ocl::schedule
