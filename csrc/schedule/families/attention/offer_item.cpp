// csrc/schedule/families/attention/offer_item.cpp: offers kernels/attention/item.cl, attention on CPUs.
#include "csrc/schedule/families/attention/operands.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

constexpr int kBlock = 256;  // Columns in a block of scores.

/// Returns the columns of the scores (keys or queries) in panels [batch][head][panel][depth][width], with zeros at the
/// end. A pack launch transposes them in registers. If loops write the operand, a generated copy makes the panels
/// instead, because it fuses with the loops.
TemplateLaunch::Input column_panels(Draft& draft, const ir::View& view, int width) {
  const auto rows = strided_operand(draft, view, {0, 1, 2, 3});
  const bool one_copy = rows && rows->strides[0].is_const(0) && rows->strides[1].is_const(0);
  if (rows && rows->strides[3].is_const(1) && !one_copy && !is_written_by_loops(draft, view.buffer)) {
    const IndexExpr heads = view.sizes[1], matrix = IndexExpr::loop(0);
    const std::map<ir::Symbol, IndexExpr> by_matrix = {{IndexExpr::loop(0).symbol(), ir::floordiv(matrix, heads)},
                                                       {IndexExpr::loop(1).symbol(), ir::mod(matrix, heads)},
                                                       {IndexExpr::loop(3).symbol(), IndexExpr::loop(1)}};
    ir::View turned{view.buffer, {view.sizes[0] * heads, view.sizes[3], view.sizes[2]}, {}};
    for (const IndexExpr& e : view.coords) turned.coords.push_back(ir::substitute(e, by_matrix));
    const Matrices in_place{rows->input, rows->strides[0], rows->strides[1], rows->strides[3], rows->strides[2]};
    return packed_panels(draft, turned, in_place, heads, width).input;
  }
  const IndexExpr row = IndexExpr::loop(2) * width + IndexExpr::loop(4);
  return copied_operand(draft, view, {view.sizes[0], view.sizes[1], ir::ceildiv(view.sizes[2], width), view.sizes[3], width},
                        {IndexExpr::loop(0), IndexExpr::loop(1), row, IndexExpr::loop(3)}, {{row, view.sizes[2]}})
      .input;
}

}  // namespace

void offer_attention_item(Draft& draft) {
  const AttentionParts parts = attention_parts(draft);
  const Caps& caps = draft.caps;
  const int vw = caps.vector_floats;
  const int64_t rows = typical(parts.rows(), 512);
  ItemTile tile = choose_item_tile(draft, rows, typical(parts.columns(), 512));
  // A block must consist of whole panels.
  if (tile.vectors == 3) {
    tile.rows = 6;
    tile.vectors = 4;
  }
  if (parts.rows().is_const()) tile.rows = static_cast<int>(std::min<int64_t>(tile.rows, rows));
  const int width = tile.vectors * vw;
  const int tiles_per_item = choose_tiles_per_item(draft, (rows + tile.rows - 1) / tile.rows,
                                                   typical(parts.batch, 8) * typical(parts.row_heads(), 8), 16);

  TemplateLaunch& launch = draft.launch();
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + " packed";
  launch.stores.width = vw;
  define_types(draft, launch, vw);
  define(launch, {{"MR", tile.rows}, {"NV", tile.vectors}, {"MT", tiles_per_item}, {"BLOCK", kBlock}});
  define_attention(draft, parts);

  const auto add_rows = [&](const char* name, const ir::View* view, int readable_multiple) {
    if (view) add_rows_arguments(draft, name, attention_rows(draft, *view, readable_multiple));
  };
  add_rows("a", parts.a, 1);
  launch.buffer("b", column_panels(draft, *parts.b, width));
  add_rows("w", parts.w, vw);
  if (parts.pass > 0) {
    add_rows("a2", parts.a2, 1);
    launch.buffer("b2", column_panels(draft, *parts.b2, width));
    add_statistics_arguments(draft, parts);
  }
  add_rows("w2", parts.w2, vw);
  add_mask_arguments(draft, parts);
  add_blocks_arguments(draft, parts);
  launch.groups = {ir::ceildiv(parts.rows(), tile.rows * tiles_per_item), parts.row_heads(), parts.batch};
}

}  // namespace ocl::schedule
