// csrc/schedule/families/attention/offer_group.cpp: offers the portable kernels of attention on GPUs,
// kernels/attention/group.cl and few_rows_group.cl.
#include "csrc/schedule/families/attention/operands.h"

namespace ocl::schedule {

using ir::IndexExpr;
namespace {

constexpr int kPad = 4;

/// A tile of scores: rows of a work-group, columns of a step, and elements of the depth that are staged at a time.
struct Tile {
  int rows, columns, step;
  int items() const { return rows / 4 * (columns / 4); }
};

/// Returns the bytes of local memory that kernels/attention/group.cl needs.
int64_t local_bytes(const Tile& tile, int pass) {
  const int statistics = pass == 0 ? 0 : 3 * (pass == 1 ? tile.rows : tile.columns);
  return 4LL * (tile.step * (tile.rows + tile.columns + 2 * kPad) + tile.columns * (tile.rows + kPad) + statistics);
}

/// Returns a tile for many rows and one for few, if the device has the local memory and work-items. With few registers, a
/// work-item has the sums of four columns of the output: a step is as wide as the heads.
std::vector<Tile> tiles_for(const Caps& caps, const AttentionParts& parts) {
  int columns = 64;
  if (few_registers(caps))
    while (columns < std::max(parts.depth, parts.depth2) && columns < 256) columns *= 2;
  std::vector<Tile> tiles;
  for (; tiles.empty() && columns >= 64; columns /= 2)
    for (const int rows : {4096 / columns, 2048 / columns}) {
      Tile tile = {rows, columns, few_registers(caps) ? 8 : 16};
      if (local_bytes(tile, parts.pass) > caps.local_bytes) tile.step = 8;
      if (rows >= 16 && tile.items() <= caps.max_group_size && local_bytes(tile, parts.pass) <= caps.local_bytes)
        tiles.push_back(tile);
    }
  // Where a driver grants few work-items. The last tile is offered anyway, and refused if it is too large.
  constexpr Tile kSmall[] = {{32, 64, 8}, {16, 64, 8}, {16, 32, 8}};
  for (const Tile& tile : kSmall)
    if (tiles.empty() && (tile.items() <= caps.max_group_size || tile.columns == 32)) tiles.push_back(tile);
  return tiles;
}

/// Adds rows of operands to a launch, and collects their sizes and strides.
struct RowsOf {
  Draft& draft;
  std::vector<IndexExpr> sizes = {};
  void add(const char* name, const ir::View* view) {
    if (!view) return;
    const Operand operand = attention_rows(draft, *view, 1);
    add_rows_arguments(draft, name, operand);
    sizes.insert(sizes.end(), operand.strides.begin(), operand.strides.begin() + 3);
    sizes.push_back(view->sizes[3]);
  }
};

}  // namespace

int few_rows_items(const Caps& caps) { return std::min(caps.max_group_size, 256); }

int few_rows_part(const Draft& draft) {
  return draft.buffer(draft.node().operands[0].buffer).dtype == ir::DType::kF32 ? 4 : 8;  // 16 bytes
}

void offer_attention_few_rows(Draft& draft) {
  const AttentionParts parts = attention_parts(draft);
  const int items = few_rows_items(draft.caps), part = few_rows_part(draft);
  TemplateLaunch& launch = draft.launch();
  launch.variant = std::to_string(items) + " work-items";
  launch.stores.width = 4;
  launch.local = {items, 1, 1};
  define_types(draft, launch, part);
  define(launch, "GROUP_SIZE", items);
  if (few_registers(draft.caps)) define(launch, "MOST_HELD", 4);
  define_attention(draft, parts);
  RowsOf rows{draft};
  rows.add("a", parts.a);
  rows.add("b", parts.b);
  rows.add("w", parts.w);
  add_mask_arguments(draft, parts);
  add_blocks_arguments(draft, parts);
  define(launch, "WHOLE_PARTS", multiples(draft, part, rows.sizes));
  launch.groups = {parts.queries, parts.heads, parts.batch};
}

void offer_attention_group(Draft& draft) {
  const AttentionParts parts = attention_parts(draft);
  const Caps& caps = draft.caps;
  const int64_t count = typical(parts.rows(), 512), others = typical(parts.batch, 8) * typical(parts.row_heads(), 8);
  const std::vector<Tile> tiles = tiles_for(caps, parts);
  const Tile &most = tiles.front(), &least = tiles.back();
  const bool large = count > least.rows && (count + most.rows - 1) / most.rows * others >= caps.units;
  const Tile& first = large ? most : least;
  const Tile& other = large ? least : most;
  const Tile& tile = draft.choices().pick("tile", {first.rows, other.rows}) == most.rows ? most : least;

  TemplateLaunch& launch = draft.launch();
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(tile.columns);
  launch.stores.width = 4;
  launch.local = {tile.items(), 1, 1};
  define_types(draft, launch, 4);
  define(launch, {{"TILE_R", tile.rows}, {"TILE_C", tile.columns}, {"STEP", tile.step}});
  if (few_registers(caps)) define(launch, {{"FEW_REGISTERS", 1}, {"MULTIPLY_DEPTH", parts.pass == 2 && parts.state ? 1 : 2}});
  define_attention(draft, parts);

  RowsOf rows{draft};
  rows.add("a", parts.a);
  rows.add("b", parts.b);
  rows.add("w", parts.w);
  if (parts.pass > 0) {
    rows.add("a2", parts.a2);
    rows.add("b2", parts.b2);
    add_statistics_arguments(draft, parts);
  }
  rows.add("w2", parts.w2);
  add_mask_arguments(draft, parts);
  add_blocks_arguments(draft, parts);
  define(launch, "QUADS", multiples(draft, 4, rows.sizes));
  launch.groups = {ir::ceildiv(parts.rows(), tile.rows), parts.row_heads(), parts.batch};
}

}  // namespace ocl::schedule
