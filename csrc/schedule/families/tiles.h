// csrc/schedule/families/tiles.h: tiles of the portable kernels, and how a tile is chosen.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "csrc/schedule/families/operands.h"

namespace ocl::schedule {

/// Returns the value of `e` if it is constant, otherwise `otherwise`. Use it for choices of speed, never of
/// correctness.
int64_t typical(const ir::IndexExpr& e, int64_t otherwise);
/// True if all expressions are constants.
bool constants(const std::vector<ir::IndexExpr>& sizes);
/// True if a work-item lacks the registers for the operands of several depths of a staged tile, besides all else.
bool few_registers(const Caps& caps);
/// Rows of a register tile with two vectors of columns, on a CPU: AVX2 (8 floats) has 16 vector registers, others have 32.
inline int rows_of_two_vectors(const Caps& caps) { return caps.vector_floats == 8 ? 4 : 8; }
/// True if such tiles, with filters in rows and channels in columns, need no checks.
inline bool in_whole_tiles(const Caps& caps, int64_t filters, int64_t channels) {
  return channels % caps.vector_floats == 0 && filters % std::max(rows_of_two_vectors(caps), caps.vector_floats) == 0;
}
/// " in 4 slices"; "" for one slice.
std::string in_slices(int64_t splits);

/// Largest number of alternatives that a knob offers: the best ones by the cost model.
inline constexpr size_t kMostOptions = 3;
/// Sorts pairs of cost and tile, and offers the cheapest tiles as the knob "tile". Returns the one that is taken.
template <class Tile>
Tile pick_tile(Choices& choices, std::vector<std::pair<double, Tile>> ranked) {
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [cost, tile] : ranked)
    if (names.size() < kMostOptions || choices.exact()) names.push_back(tile.name());
  return ranked[choices.pick("tile", names)].second;
}

/// A register tile of a CPU kernel: rows, and vectors of columns.
struct ItemTile {
  int registers;  // Vector registers of the CPUs that the tile is for: 32 with 16 floats and on NEON, 16 on AVX2.
  int rows, vectors;
  double cost;         // Time per element of the output, relative to the best tile.
  const char* source;  // Where the cost comes from: "measured" or "estimate".
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(vectors); }
};
/// The tiles of families/tiles.def.
const std::vector<ItemTile>& item_tiles();
/// Returns the tile with the lowest cost for rows x columns: the area of all tiles, which may reach beyond the output,
/// times the tile's cost. The choice is the knob "tile".
ItemTile choose_item_tile(Draft& draft, int64_t rows, int64_t columns, const std::vector<ItemTile>& among = item_tiles());
/// Returns the number of tiles of a work-item: `max_tiles`, halved until at least 4 work-items per core are left.
/// tiles: number of all tiles; other_items: number of work-items in the other dimensions. The choice is the knob "run".
int choose_tiles_per_item(Draft& draft, int64_t tiles, int64_t other_items, int max_tiles);

/// The tile of the output that a work-group computes, and the block of it that a work-item computes
/// (kernels/gemm/group.cl). A step takes 16 elements of the inner dimension.
struct GroupTile {
  int rows, columns, item_rows, item_columns;
  // Registers of a work-item, the most that compilers of AMD's GPUs report for the kernel with any types and layouts.
  // `summed`: with a second set of sums.
  int registers, summed;
  double rate;         // Speed on a full device, relative to the best tile of the kernel.
  const char* source;  // Where the rate comes from: the GPU that it was measured on, or "estimate".
  int items() const { return rows / item_rows * (columns / item_columns); }
  /// True if the kernel can be built with the tile. The rows of tiles.def may be wrong.
  bool is_possible() const {
    const auto divides = [](int item, int whole) { return (item == 4 || item == 8) && whole > 0 && whole % (4 * item) == 0; };
    return divides(item_rows, rows) && divides(item_columns, columns) && registers > 0 && summed > 0 && rate > 0;
  }
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(columns); }
};
/// Returns the number of tiles of `others` outputs of rows x columns.
template <class Tile>
int64_t count_tiles(const Tile& tile, int64_t rows, int64_t columns, int64_t others) {
  return (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * others;
}
/// Returns the cost of `others` outputs of rows x columns, rounded up to full waves of tiles: output elements per compute
/// unit, divided by the tile's rate. at_once: work-groups that share a compute unit.
template <class Tile>
double tile_cost(const Caps& caps, const Tile& tile, int64_t rows, int64_t columns, int64_t others, int at_once = 1) {
  const int64_t resident = caps.units * at_once, waves = (count_tiles(tile, rows, columns, others) + resident - 1) / resident;
  return static_cast<double>(waves * at_once) * tile.rows * tile.columns / tile.rate;
}
/// Returns the tiles that the device has the work-items, local memory and registers for, with sums of `depth` products. Of
/// tiles with equal rows and columns, returns the first. If no tile fits, returns one with the fewest work-items. InternalError
/// for a tile that is not possible. more_registers: what a work-item needs beyond the table's numbers.
std::vector<GroupTile> fitting_tiles(const Caps& caps, const std::vector<GroupTile>& among, int64_t depth,
                                     int more_registers = 0);
/// Returns the tile of `among` with the lowest tile_cost. The choice is the knob "tile".
GroupTile choose_group_tile(Draft& draft, const std::vector<GroupTile>& among, int64_t rows, int64_t columns, int64_t others);
/// Defines TILE_M, TILE_N, TILE_K, ITEM_M, ITEM_N and MULTIPLY_DEPTH. Defines SUM_STEPS for sums of `depth` products. Sets
/// the local size.
void use_tile(Draft& draft, const GroupTile& tile, int64_t depth);

}  // namespace ocl::schedule
