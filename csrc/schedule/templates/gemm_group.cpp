// csrc/schedule/templates/gemm_group.cpp: chooses kernels/gemm/group.cl, matrix products on GPUs.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/group_tiles.h"
#include "csrc/schedule/templates/matrix_operands.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

const std::vector<GroupTile> kTiles = {
    {128, 64, 8, 4, 1.0}, {64, 128, 8, 8, 0.98}, {64, 64, 8, 4, 0.93}, {32, 64, 4, 4, 0.6}, {16, 64, 4, 4, 0.35}};

}  // namespace

bool choose_gemm_group(TemplateContext& context, TemplateLaunch& launch) {
  if (context.graph.nodes[context.node].kind != ir::NodeKind::kContract || !loadable(context)) return false;
  const ir::Shape whole = context.graph.nodes[context.node].sizes;
  const int64_t rows = typical(whole[1], 512), columns = typical(whole[2], 512), batches = typical(whole[0], 8);
  const int64_t depth =
      typical(context.graph.nodes[context.node].reduce_sizes[0], 512);  // A split into slices of 256 gives more tiles.
  const GroupTile tile = choose_group_tile(context, kTiles, rows, columns, batches * std::clamp<int64_t>(depth / 256, 1, 64));
  const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * batches;
  const int64_t splits =
      constants(whole) ? choose_splits(context, tiles, context.graph.nodes[context.node].reduce_sizes[0]) : 1;
  if (splits > 1) split_depth(context, splits);

  const ir::Node& node = context.graph.nodes[context.node];
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2], K = node.reduce_sizes[0];

  launch = TemplateLaunch{};
  launch.kernel = KernelId::k_gemm_group;
  launch.kind = "gemm";
  launch.variant = tile.name() + (splits > 1 ? " in " + std::to_string(splits) + " slices" : "");
  define_types(context, launch, 4);
  use_tile(launch, tile, typical(K, 512));
  pass_matrices(context, launch);
  launch.groups = {ir::ceildiv(M, tile.rows) * ir::ceildiv(N, tile.columns), 1, batch};
  launch.store_width = 4;
  return true;
}

}  // namespace ocl::schedule
