// csrc/schedule/templates/gemm_item.cpp: matrix products on CPUs by kernels/gemm_item.cl, or gemm_dot_item.cl for few rows and
// a weight [N][K].
#include <algorithm>
#include <array>
#include <map>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

/// A batch of matrices: element (b, i, j) at offset + (b / inner)*outer_stride + (b % inner)*inner_stride + i*row + j*col.
struct Matrices {
  TemplateLaunch::Input input;
  IndexExpr outer_stride, inner_stride, row, col;
};

/// The n of some b / n or b % n in the expression: the batch is two dimensions flattened (batch and heads).
std::optional<IndexExpr> batch_factor(const IndexExpr& e) {
  if (e.is_const() || e.op() == ir::IndexOp::kSymbol) return std::nullopt;
  const bool divides = e.op() == ir::IndexOp::kFloorDiv || e.op() == ir::IndexOp::kMod;
  if (divides && e.args()[0] == IndexExpr::loop(0) && !e.args()[1].uses(ir::SymbolKind::kLoop)) return e.args()[1];
  for (const IndexExpr& arg : e.args())
    if (auto found = batch_factor(arg)) return found;
  return std::nullopt;
}

IndexExpr offset_of(TemplateContext& context, const ir::View& view) {
  const std::vector<int> order = [&] {
    std::vector<int> dims(context.graph.buffers[view.buffer].sizes.size());
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int>(d);
    return dims;
  }();
  lay_out(context.graph, view.buffer, order);
  ir::Ranges ranges = context.graph.ranges();
  for (int d = 0; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, view.sizes[d]);
  return ir::linear_offset(context.graph.buffers[view.buffer], view.coords, ranges);
}

/// The view with b = q*inner + r, if its offset is then affine in q, r, i and j.
std::optional<Matrices> matrices(TemplateContext& context, const ir::View& view, const IndexExpr& inner) {
  const IndexExpr q = IndexExpr::loop(3), r = IndexExpr::loop(4);
  ir::Ranges ranges = context.graph.ranges();
  for (int d = 1; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, view.sizes[d]);
  ranges.set_extent(q.symbol(), ir::ceildiv(view.sizes[0], inner));
  ranges.set_extent(r.symbol(), inner);
  IndexExpr rest = ir::simplify(
      ir::substitute(offset_of(context, view), {{IndexExpr::loop(0).symbol(), inner.is_const(1) ? q : q * inner + r}}), ranges);
  std::array<IndexExpr, 4> steps;
  const std::array<IndexExpr, 4> loops = {q, r, IndexExpr::loop(1), IndexExpr::loop(2)};
  for (size_t i = 0; i < loops.size(); ++i) {
    const auto affine = ir::affine_in(rest, loops[i].symbol());
    if (!affine || affine->coefficient.uses(ir::SymbolKind::kLoop)) return std::nullopt;
    steps[i] = ir::simplify(affine->coefficient, ranges);
    rest = ir::simplify(affine->rest, ranges);
  }
  if (rest.uses(ir::SymbolKind::kLoop)) return std::nullopt;
  return Matrices{{view.buffer, rest}, steps[0], steps[1], steps[2], steps[3]};
}

Matrices dense_matrices(TemplateContext& context, const ir::View& view, const IndexExpr& inner) {
  const Operand copy = dense_copy(context, view, {0, 1, 2});
  return {copy.input, copy.strides[0] * inner, inner.is_const(1) ? IndexExpr(0) : copy.strides[0], copy.strides[1],
          copy.strides[2]};
}

}  // namespace

bool choose_gemm_item(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kContract || !loadable(context)) return false;
  const Caps& caps = context.caps;
  const int vw = caps.vector_floats;
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2], K = node.reduce_sizes[0];
  const int64_t rows = typical(M, 512), columns = typical(N, 512), batches = typical(batch, 8);

  IndexExpr inner = 1;
  for (const ir::View& view : node.operands)
    if (const auto factor = batch_factor(offset_of(context, view)); factor && inner.is_const(1)) inner = *factor;
  std::optional<Matrices> a = matrices(context, node.operands[0], inner), b = matrices(context, node.operands[1], inner);
  if (!a || (!a->col.is_const(1) && !a->row.is_const(1) && columns >= 32)) a = dense_matrices(context, node.operands[0], inner);
  if (!b) b = dense_matrices(context, node.operands[1], inner);

  launch = TemplateLaunch{};
  launch.kind = "gemm";
  define_types(context, launch, vw);
  launch.store_coords = {0, 1, 2};
  launch.store_dim = 2;

  if (M.is_const() && rows <= 16 && a->col.is_const(1) && b->row.is_const(1) && !b->col.is_const(1)) {
    const int accumulators = vw == 8 ? 12 : 24, mr = static_cast<int>(rows <= 8 ? rows : (rows + 1) / 2);
    const int nr = std::clamp(accumulators / mr, 1, 8), mt = choose_run(caps, (columns + nr - 1) / nr, batches, 16);
    launch.file = "gemm_dot_item";
    launch.variant = std::to_string(mr) + "x" + std::to_string(nr) + " along k";
    define(launch, "MR", mr);
    define(launch, "NR", nr);
    define(launch, "MT", mt);
    launch.inputs = {a->input, b->input};
    pass(launch, {M, N, K, a->row, b->col, inner}, {a->outer_stride, a->inner_stride, b->outer_stride, b->inner_stride});
    launch.groups = {ir::ceildiv(N, nr * mt), batch, 1};
    return true;
  }

  Tile tile = choose_tile(caps, rows, columns);
  int chains = 1, b_layout = 1, a_layout = 2;
  if (M.is_const() && rows <= 8) {  // one tile of rows: several sums along k hide the latency of multiply-add
    tile = {static_cast<int>(rows), rows > 4 || vw == 8 ? 2 : 4};
    while (tile.vectors > 1 && columns % (tile.vectors * vw) != 0) tile.vectors /= 2;
    while (chains < 8 && tile.rows * tile.vectors * chains * 2 <= 8) chains *= 2;
  }
  const int width = tile.vectors * vw;
  if (a->col.is_const(1))
    a_layout = 0;
  else if (a->row.is_const(1))
    a_layout = 1;
  const bool one_tile = M.is_const() && rows <= tile.rows;
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows, panels = (columns + width - 1) / width * batches;
  int mt = one_tile ? 1 : choose_run(caps, row_tiles, panels, 16);
  if (b->col.is_const(1)) {
    b_layout = one_tile && N.is_const() && columns % width == 0 ? 3 : 1;
  } else {  // a panel [K][width] is packed once, by a launch of its own: the item would do it again for each block of rows
    b_layout = 0;
    const IndexExpr column = IndexExpr::loop(1) * width + IndexExpr::loop(3);
    const bool shared = b->outer_stride.is_const(0) && b->inner_stride.is_const(0);
    const IndexExpr count = shared ? IndexExpr(1) : batch;
    const Operand packed = copied_operand(context, node.operands[1], {count, ir::ceildiv(N, width), K, width},
                                          {IndexExpr::loop(0), IndexExpr::loop(2), column}, {{column, N}});
    b = Matrices{packed.input, shared ? IndexExpr(0) : packed.strides[0] * inner,
                 shared || inner.is_const(1) ? IndexExpr(0) : packed.strides[0], 0, 0};
    mt = std::min(mt, 8);
  }
  launch.file = "gemm_item";
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + (b_layout == 0 ? " packed" : " in place");
  launch.store_width = vw;
  define(launch, "MR", tile.rows);
  define(launch, "NV", tile.vectors);
  define(launch, "MT", mt);
  define(launch, "A_COL_MAJOR", a_layout);
  define(launch, "B_IN_PLACE", b_layout);
  define(launch, "WHOLE_VECTORS", N.is_const() && columns % vw == 0);
  if (chains > 1) define(launch, "K_CHAINS", chains);
  launch.inputs = {a->input, b->input};
  pass(launch, {M, N, K, a->row, a->col, b->row, b->col, inner},
       {a->outer_stride, a->inner_stride, b->outer_stride, b->inner_stride});
  launch.groups = {ir::ceildiv(M, tile.rows * mt), ir::ceildiv(N, width), batch};
  return true;
}

}  // namespace ocl::schedule
