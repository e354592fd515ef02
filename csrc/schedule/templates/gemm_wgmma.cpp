// csrc/schedule/templates/gemm_wgmma.cpp: matrix products on matrix units by kernels/gemm_wgmma.cl.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"
#include "csrc/schedule/templates/matrix_operands.h"
#include "csrc/schedule/templates/wgmma_tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;

bool choose_gemm_wgmma(TemplateContext& context, TemplateLaunch& launch) {
  if (context.graph.nodes[context.node].kind != ir::NodeKind::kContract) return false;
  const auto math = unit_math(context);
  if (!math) return false;
  const ir::Shape whole = context.graph.nodes[context.node].sizes;
  const IndexExpr whole_depth = context.graph.nodes[context.node].reduce_sizes[0];
  const int64_t rows = typical(whole[1], 512), columns = typical(whole[2], 512), batches = typical(whole[0], 8);
  const int64_t depth = typical(whole_depth, 512);
  if (rows < 24 || columns < 24 || depth < 16) return false;  // most of a tile would be empty
  const UnitTile tile = choose_unit_tile(context, *math, rows, columns, batches * std::clamp<int64_t>(depth / 256, 1, 64));
  const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * batches;
  const int64_t splits = constants(whole) ? choose_splits(context, tiles, whole_depth, math->chunk) : 1;
  if (splits > 1) split_depth(context, splits);

  const ir::Node& node = context.graph.nodes[context.node];
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2];
  launch = TemplateLaunch{};
  launch.kind = "gemm";
  use_unit_tile(context, launch, "gemm_wgmma", *math, tile, N);
  if (splits > 1) launch.variant += " in " + std::to_string(splits) + " parts";
  pass_matrices(context, launch, math->chunk);
  const IndexExpr tiles_of_one = ir::ceildiv(M, tile.rows) * ir::ceildiv(N, tile.columns);
  launch.groups = {persistent_groups(context.caps, tiles_of_one, tile, batch), 1, batch};
  return true;
}

}  // namespace ocl::schedule
