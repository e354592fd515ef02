// csrc/schedule/templates/attention_item.cpp: chooses kernels/attention/item.cl, attention on CPUs.
#include <algorithm>
#include <map>

#include "csrc/schedule/templates/attention_operands.h"
#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/matrix_operands.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

constexpr int kBlock = 256;  // Columns in a block of scores.

/// Returns the columns of the scores (keys or queries) in panels [batch][head][panel][depth][width], with zeros at the
/// end. A pack launch transposes them in registers. If loops write the operand, a generated copy makes the panels
/// instead, because it fuses with the loops.
TemplateLaunch::Input column_panels(TemplateContext& context, const ir::View& view, int width) {
  const auto rows = strided_operand(context, view, {0, 1, 2, 3});
  const bool one_copy = rows && rows->strides[0].is_const(0) && rows->strides[1].is_const(0);
  if (rows && rows->strides[3].is_const(1) && !one_copy && !is_written_by_loops(context, view.buffer)) {
    const IndexExpr heads = view.sizes[1], matrix = IndexExpr::loop(0);
    const std::map<ir::Symbol, IndexExpr> by_matrix = {{IndexExpr::loop(0).symbol(), ir::floordiv(matrix, heads)},
                                                       {IndexExpr::loop(1).symbol(), ir::mod(matrix, heads)},
                                                       {IndexExpr::loop(3).symbol(), IndexExpr::loop(1)}};
    ir::View turned{view.buffer, {view.sizes[0] * heads, view.sizes[3], view.sizes[2]}, {}};
    for (const IndexExpr& e : view.coords) turned.coords.push_back(ir::substitute(e, by_matrix));
    const Matrices in_place{rows->input, rows->strides[0], rows->strides[1], rows->strides[3], rows->strides[2]};
    return packed_panels(context, turned, in_place, heads, width).input;
  }
  const IndexExpr row = IndexExpr::loop(2) * width + IndexExpr::loop(4);
  return copied_operand(context, view, {view.sizes[0], view.sizes[1], ir::ceildiv(view.sizes[2], width), view.sizes[3], width},
                        {IndexExpr::loop(0), IndexExpr::loop(1), row, IndexExpr::loop(3)}, {{row, view.sizes[2]}})
      .input;
}

}  // namespace

bool choose_attention_item(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  const auto found = attention_parts(context, node, kLargestHeadSize);
  if (!found) return false;
  const AttentionParts& parts = *found;
  const Caps& caps = context.caps;
  const int vw = caps.vector_floats;
  const int64_t rows = typical(parts.rows(), 512);
  Tile tile = choose_tile(context, rows, typical(parts.columns(), 512));
  // A block must consist of whole panels.
  if (tile.vectors == 3) tile = {6, 4};
  if (parts.rows().is_const()) tile.rows = static_cast<int>(std::min<int64_t>(tile.rows, rows));
  const int width = tile.vectors * vw;
  const int tiles_per_item = choose_tiles_per_item(context, (rows + tile.rows - 1) / tile.rows,
                                                   typical(parts.batch, 8) * typical(parts.row_heads(), 8), 16);

  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_attention_item;
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + " packed";
  launch.store_width = vw;
  define_types(context, launch, vw);
  define(launch, "MR", tile.rows);
  define(launch, "NV", tile.vectors);
  define(launch, "MT", tiles_per_item);
  define(launch, "BLOCK", kBlock);
  define_attention(node, parts, launch);

  const auto add_rows = [&](const char* name, const ir::View* view, int readable_multiple) {
    if (view) add_rows_arguments(launch, name, attention_rows(context, *view, readable_multiple));
  };
  add_rows("a", parts.a, 1);
  launch.buffer("b", column_panels(context, *parts.b, width));
  add_rows("w", parts.w, vw);
  if (parts.pass > 0) {
    add_rows("a2", parts.a2, 1);
    launch.buffer("b2", column_panels(context, *parts.b2, width));
    add_statistics_arguments(context, parts, launch);
  }
  add_rows("w2", parts.w2, vw);
  add_mask_arguments(context, parts, launch);
  launch.groups = {ir::ceildiv(parts.rows(), tile.rows * tiles_per_item), parts.row_heads(), parts.batch};
  return true;
}

}  // namespace ocl::schedule
