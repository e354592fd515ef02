// csrc/schedule/templates/gemm_tensor_core.cpp: chooses tensor core kernels for matrix products.
#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/matrix_operands.h"
#include "csrc/schedule/templates/tensor_core_tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;

bool choose_gemm_tensor_core(TemplateContext& context, TemplateLaunch& launch) {
  if (context.graph.nodes[context.node].kind != ir::NodeKind::kContract) return false;
  const auto math = tensor_core_math(context);
  if (!math) return false;
  const ProductSizes problem = product_sizes(context.graph.nodes[context.node]);
  // Most of a tile would be empty, so another kernel is better.
  if (problem.rows < 24 || problem.columns < 24 || problem.depth < 16) return false;
  const auto [tile, splits, seconds] = choose_tile_plan(context, *math, problem, false);
  if (splits > 1) split_depth(context, splits);

  const ir::Node& node = context.graph.nodes[context.node];
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2];
  launch = TemplateLaunch{};
  launch.kind = "gemm";
  use_tensor_core_tile(context, launch, *math, tile, N);
  if (splits > 1) launch.variant += " in " + std::to_string(splits) + " slices";
  pass_matrices(context, launch, math->chunk);
  const IndexExpr tiles_of_one = ir::ceildiv(M, tile.rows) * ir::ceildiv(N, tile.columns);
  launch.groups = {persistent_groups(context.caps, tiles_of_one, tile, batch), 1, batch};
  return true;
}

}  // namespace ocl::schedule
