// csrc/schedule/families/tiles.cpp: chooses tiles of the portable kernels.
#include "csrc/schedule/families/tiles.h"

#include "csrc/support/error.h"

namespace ocl::schedule {

namespace {

constexpr int kTileDepth = 16;  // Inner-dimension elements of one step.
// Inner-dimension elements of one running sum. The error is then below twice that of libraries that sum in blocks.
constexpr int kSumDepth = 256;
// Registers of a work-item that hold the operands of a whole step, besides all else.
constexpr int kManyRegisters = 255;

/// True if long sums get a second set of sums. It costs registers, so short sums have one set.
bool summed(int64_t depth) { return depth > 3 * kSumDepth; }

}  // namespace

const std::vector<ItemTile>& item_tiles() {
#define ITEM_TILE(...) ItemTile{__VA_ARGS__},
  static const std::vector<ItemTile> tiles = {
#include "csrc/schedule/families/tiles.def"
  };
#undef ITEM_TILE
  return tiles;
}

bool few_registers(const Caps& caps) { return caps.item_registers < kManyRegisters; }

int64_t typical(const IndexExpr& e, int64_t otherwise) { return e.is_const() ? e.constant() : otherwise; }

bool constants(const std::vector<IndexExpr>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const IndexExpr& e) { return e.is_const(); });
}

std::string in_slices(int64_t splits) { return splits > 1 ? " in " + std::to_string(splits) + " slices" : ""; }

ItemTile choose_item_tile(Draft& draft, int64_t rows, int64_t columns, const std::vector<ItemTile>& among) {
  const int vector_floats = draft.caps.vector_floats, registers = vector_floats == 8 ? 16 : 32;
  std::vector<std::pair<double, ItemTile>> ranked;
  for (const ItemTile& tile : among) {
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

std::vector<GroupTile> fitting_tiles(const Caps& caps, const std::vector<GroupTile>& among, int64_t depth, int more_registers) {
  std::vector<GroupTile> fitting;
  for (const GroupTile& tile : among)
    OCL_ASSERT(tile.is_possible(), "the row of the tile " + tile.name() +
                                       " in tiles.def is wrong: item rows and item columns are 4 or 8, rows and columns "
                                       "multiples of 4 times as many, and registers, summed and rate above 0");
  for (const GroupTile& tile : among)
    // The two staged tiles must fit into local memory.
    if (tile.items() <= caps.max_group_size && 2 * 16 * (tile.rows + tile.columns + 8) * 4 <= caps.local_bytes &&
        (summed(depth) ? tile.summed : tile.registers) + more_registers <= caps.item_registers &&
        std::none_of(fitting.begin(), fitting.end(), [&](const GroupTile& other) { return other.name() == tile.name(); }))
      fitting.push_back(tile);
  if (fitting.empty())
    fitting.push_back(*std::min_element(among.begin(), among.end(),
                                        [](const GroupTile& a, const GroupTile& b) { return a.items() < b.items(); }));
  return fitting;
}

GroupTile choose_group_tile(Draft& draft, const std::vector<GroupTile>& among, int64_t rows, int64_t columns, int64_t others) {
  std::vector<std::pair<double, GroupTile>> ranked;
  for (const GroupTile& tile : among) ranked.emplace_back(tile_cost(draft.caps, tile, rows, columns, others), tile);
  return pick_tile(draft.choices(), std::move(ranked));
}

void use_tile(Draft& draft, const GroupTile& tile, int64_t depth) {
  TemplateLaunch& launch = draft.launch();
  define(launch, {{"TILE_M", tile.rows}, {"TILE_N", tile.columns}, {"TILE_K", kTileDepth}});
  define(launch, "SUM_STEPS", summed(depth) ? kSumDepth / kTileDepth : 0);
  define(launch, {{"ITEM_M", tile.item_rows}, {"ITEM_N", tile.item_columns}});
  if (few_registers(draft.caps)) define(launch, "MULTIPLY_DEPTH", 2);
  launch.local = {tile.items(), 1, 1};
}

}  // namespace ocl::schedule
