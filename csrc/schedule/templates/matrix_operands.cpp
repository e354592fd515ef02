// csrc/schedule/templates/matrix_operands.cpp: a view [b, i, j] as strided matrices, in place or copied.
#include "csrc/schedule/templates/matrix_operands.h"

#include <array>

namespace ocl::schedule {

using ir::IndexExpr;

std::optional<IndexExpr> batch_factor(const IndexExpr& e) {
  if (e.is_const() || e.op() == ir::IndexOp::kSymbol) return std::nullopt;
  const bool divides = e.op() == ir::IndexOp::kFloorDiv || e.op() == ir::IndexOp::kMod;
  if (divides && e.args()[0] == IndexExpr::loop(0) && !e.args()[1].uses(ir::SymbolKind::kLoop)) return e.args()[1];
  for (const IndexExpr& arg : e.args())
    if (auto found = batch_factor(arg)) return found;
  return std::nullopt;
}

IndexExpr offset_of(TemplateContext& context, const ir::View& view) {
  std::vector<int> row_major(context.graph.buffers[view.buffer].sizes.size());
  for (size_t d = 0; d < row_major.size(); ++d) row_major[d] = static_cast<int>(d);
  lay_out(context.graph, view.buffer, row_major);
  ir::Ranges ranges = context.graph.ranges();
  for (int d = 0; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, view.sizes[d]);
  return ir::linear_offset(context.graph.buffers[view.buffer], view.coords, ranges);
}

std::optional<Matrices> matrices_in_place(TemplateContext& context, const ir::View& view, const IndexExpr& inner) {
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

}  // namespace ocl::schedule
