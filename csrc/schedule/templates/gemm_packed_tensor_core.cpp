// csrc/schedule/templates/gemm_packed_tensor_core.cpp: chooses tensor core kernels for matrix products that are large
// enough to pack both operands first.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/matrix_operands.h"
#include "csrc/schedule/templates/tensor_core_tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;
namespace {

/// True if packing saves more time than it costs, and if its buffers fit into memory.
bool is_profitable(const TemplateContext& context, const TensorCoreMath& math, const ProductSizes& p) {
  const Caps& caps = context.caps;
  const ir::Node& node = context.graph.nodes[context.node];
  const int element = 16 / math.chunk;
  double seconds = 0, bytes = 0;
  for (const bool first : {true, false}) {
    const ir::View& view = node.operands[first ? 0 : 1];
    const bool batched = std::any_of(view.coords.begin(), view.coords.end(), [](const IndexExpr& e) {
      return e.uses(ir::SymbolKind::kLoop) && ir::substitute(e, {{IndexExpr::loop(0).symbol(), IndexExpr(0)}}) != e;
    });
    const double count = static_cast<double>(batched ? p.batches : 1);
    const double read = count * static_cast<double>(first ? p.rows : p.columns) * static_cast<double>(p.depth) * element;
    const double written = read * (!first && math.terms == 3 ? 2 : 1);
    bytes = std::max(bytes, written);
    if (!is_kept(context, view)) seconds += (read + written) / caps.memory_bytes_per_second + caps.launch_seconds;
  }
  if (bytes > static_cast<double>(std::min(caps.max_alloc_bytes, caps.global_bytes / 16))) return false;
  return tile_plans(caps, math, p, true)[0].seconds + seconds < tile_plans(caps, math, p, false)[0].seconds;
}

}  // namespace

bool choose_gemm_packed_tensor_core(TemplateContext& context, TemplateLaunch& launch) {
  if (context.graph.nodes[context.node].kind != ir::NodeKind::kContract) return false;
  const auto math = tensor_core_math(context);
  if (!math || !context.caps.kernels.has(context.kernel, math->type)) return false;
  const ProductSizes problem = product_sizes(context.graph.nodes[context.node]);
  if (problem.rows < 64 || problem.columns < 64 || problem.depth < 64 ||
      static_cast<double>(problem.rows) * static_cast<double>(problem.columns) * static_cast<double>(problem.depth) *
              static_cast<double>(problem.batches) <
          static_cast<double>(kMinPackedProducts) ||
      !is_profitable(context, *math, problem))
    return false;
  const auto [tile, splits, seconds] = choose_tile_plan(context, *math, problem, true);
  if (splits > 1) split_depth(context, splits);

  const IndexExpr inner = inner_batch(context);
  const auto blocks = [&](ProductOperand role) {
    const ir::View view = context.graph.nodes[context.node].operands[role == ProductOperand::kA ? 0 : 1];
    return packed_blocks(context, view, matrices(context, view, inner), inner, role, math->terms);
  };
  const Blocks a = blocks(ProductOperand::kA), b = blocks(ProductOperand::kB);
  const ir::Node& node = context.graph.nodes[context.node];
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2], K = node.reduce_sizes[0];
  launch = TemplateLaunch{};
  launch.kind = "gemm";
  use_tensor_core_tile(context, launch, *math, tile, N, 32);
  launch.variant += " packed";
  if (splits > 1) launch.variant += " in " + std::to_string(splits) + " slices";
  define(launch, "PACKED", 1);
  define(launch, "A_ROWS", a.form != BlockForm::kColumns);
  define(launch, "B_ROWS", b.form != BlockForm::kColumns);
  launch.buffers({{"a", a.input}, {"b", b.input}});
  launch.args({{"M", M}, {"N", N}, {"K", K}, {"a_batch", a.batch}, {"b_batch", b.batch}});
  launch.store_coords = {0, 1, 2};
  launch.store_dim = 2;
  const IndexExpr tiles_of_one = ir::ceildiv(M, tile.rows) * ir::ceildiv(N, tile.columns);
  launch.groups = {persistent_groups(context.caps, tiles_of_one, tile, batch), 1, batch};
  return true;
}

}  // namespace ocl::schedule
