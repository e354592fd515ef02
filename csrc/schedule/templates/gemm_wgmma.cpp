// csrc/schedule/templates/gemm_wgmma.cpp: matrix products on matrix units by kernels/gemm_wgmma.cl.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"
#include "csrc/schedule/templates/matrix_operands.h"
#include "csrc/schedule/templates/wgmma_tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;

bool choose_gemm_wgmma(TemplateContext& context, TemplateLaunch& launch) {
  if (context.graph.nodes[context.node].kind != ir::NodeKind::kContract || !takes_wgmma(context)) return false;
  const ir::Shape whole = context.graph.nodes[context.node].sizes;
  const IndexExpr whole_depth = context.graph.nodes[context.node].reduce_sizes[0];
  const int64_t rows = typical(whole[1], 512), columns = typical(whole[2], 512), batches = typical(whole[0], 8);
  const int64_t depth = typical(whole_depth, 512);
  if (rows < 24 || columns < 24 || depth < 16) return false;  // most of a tile would be empty
  const UnitTile tile = choose_unit_tile(context.caps, rows, columns, batches * std::clamp<int64_t>(depth / 256, 1, 64));
  const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * batches;
  const int64_t splits = constants(whole) ? choose_splits(context.caps, tiles, whole_depth) : 1;
  if (splits > 1) split_depth(context, splits);

  const ir::Node node = context.graph.nodes[context.node];
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2], K = node.reduce_sizes[0];
  IndexExpr inner = 1;
  for (const ir::View& view : node.operands)
    if (const auto factor = batch_factor(offset_of(context, view)); factor && inner.is_const(1)) inner = *factor;
  const Matrices a = matrices(context, node.operands[0], inner), b = matrices(context, node.operands[1], inner);
  const bool a_along_k = !a.row.is_const(1) || a.col.is_const(1), b_along_k = b.row.is_const(1) && !b.col.is_const(1);

  launch = TemplateLaunch{};
  launch.kind = "gemm";
  use_unit_tile(context, launch, "gemm_wgmma", tile);
  if (splits > 1) launch.variant += " in " + std::to_string(splits) + " parts";
  define(launch, "A_K_MAJOR", a_along_k);
  define(launch, "B_K_MAJOR", b_along_k);
  define(launch, "A_VEC4",
         (a_along_k ? a.col : a.row).is_const(1) &&
             quads(context, {a_along_k ? K : M, a_along_k ? a.row : a.col, a.outer, a.inner}));
  define(launch, "B_VEC4",
         (b_along_k ? b.row : b.col).is_const(1) &&
             quads(context, {b_along_k ? K : N, b_along_k ? b.col : b.row, b.outer, b.inner}));
  launch.inputs = {a.input, b.input};
  define_alignment(context, launch);
  pass(launch, {M, N, K, inner}, {a.outer, a.inner, a.row, a.col, b.outer, b.inner, b.row, b.col});
  const IndexExpr tiles_of_one = ir::ceildiv(M, tile.rows) * ir::ceildiv(N, tile.columns);
  launch.groups = {persistent_groups(context.caps, tiles_of_one, tile, batch), 1, batch};
  launch.store_aligned = true;
  launch.store_coords = {0, 1, 2};
  launch.store_dim = 2;
  return true;
}

}  // namespace ocl::schedule
