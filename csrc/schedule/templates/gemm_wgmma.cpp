// csrc/schedule/templates/gemm_wgmma.cpp: matrix products on matrix units by kernels/gemm_wgmma.cl or gemm_mma.cl.
#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/matrix_operands.h"
#include "csrc/schedule/templates/wgmma_tiles.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

bool choose_gemm(TemplateContext& context, TemplateLaunch& launch, Units units) {
  if (context.graph.nodes[context.node].kind != ir::NodeKind::kContract) return false;
  const auto math = unit_math(context, units);
  if (!math) return false;
  const UnitProblem problem = unit_problem(context.graph.nodes[context.node]);
  if (problem.rows < 24 || problem.columns < 24 || problem.depth < 16) return false;  // most of a tile would be empty
  const auto [tile, splits, seconds] = choose_unit_way(context, *math, problem, false);
  if (splits > 1) split_depth(context, splits);

  const ir::Node& node = context.graph.nodes[context.node];
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2];
  launch = TemplateLaunch{};
  launch.kind = "gemm";
  use_unit_tile(context, launch, unit_file("gemm", *math), *math, tile, N);
  if (splits > 1) launch.variant += " in " + std::to_string(splits) + " parts";
  pass_matrices(context, launch, math->chunk);
  const IndexExpr tiles_of_one = ir::ceildiv(M, tile.rows) * ir::ceildiv(N, tile.columns);
  launch.groups = {persistent_groups(context.caps, tiles_of_one, tile, batch), 1, batch};
  return true;
}

}  // namespace

bool choose_gemm_wgmma(TemplateContext& context, TemplateLaunch& launch) {
  return choose_gemm(context, launch, Units::kWarpgroup);
}

bool choose_gemm_mma(TemplateContext& context, TemplateLaunch& launch) { return choose_gemm(context, launch, Units::kWarp); }

}  // namespace ocl::schedule
