// csrc/schedule/families/gemm/matrices.cpp: makes strided matrices of a view [b, i, j], in place or as a copy.
#include "csrc/schedule/families/gemm/matrices.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace ocl::schedule {

std::optional<IndexExpr> batch_factor(const IndexExpr& e) {
  if (e.is_const() || e.op() == ir::IndexOp::kSymbol) return std::nullopt;
  const bool divides = e.op() == ir::IndexOp::kFloorDiv || e.op() == ir::IndexOp::kMod;
  if (divides && e.args()[0] == IndexExpr::loop(0) && !e.args()[1].uses(ir::SymbolKind::kLoop)) return e.args()[1];
  for (const IndexExpr& arg : e.args())
    if (auto found = batch_factor(arg)) return found;
  return std::nullopt;
}

IndexExpr offset_of(Draft& draft, const ir::View& view) {
  std::vector<int> row_major(draft.buffer(view.buffer).sizes.size());
  std::iota(row_major.begin(), row_major.end(), 0);
  draft.lay_out(view.buffer, row_major);
  ir::Ranges ranges = draft.graph.ranges();
  for (int d = 0; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, view.sizes[d]);
  return ir::linear_offset(draft.buffer(view.buffer), view.coords, ranges);
}

std::optional<Matrices> matrices_in_place(Draft& draft, const ir::View& view, const IndexExpr& inner) {
  const IndexExpr q = IndexExpr::loop(3), r = IndexExpr::loop(4);
  ir::Ranges ranges = draft.graph.ranges();
  for (int d = 1; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, view.sizes[d]);
  ranges.set_extent(q.symbol(), ir::ceildiv(view.sizes[0], inner));
  ranges.set_extent(r.symbol(), inner);
  IndexExpr rest = ir::simplify(
      ir::substitute(offset_of(draft, view), {{IndexExpr::loop(0).symbol(), inner.is_const(1) ? q : q * inner + r}}), ranges);
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

Matrices dense_matrices(Draft& draft, const ir::View& view, const IndexExpr& inner) {
  const Operand copy = dense_copy(draft, view, {0, 1, 2});
  return {copy.input, copy.strides[0] * inner, inner.is_const(1) ? IndexExpr(0) : copy.strides[0], copy.strides[1],
          copy.strides[2]};
}

Matrices matrices(Draft& draft, const ir::View& view, const IndexExpr& inner) {
  if (const auto found = matrices_in_place(draft, view, inner)) return *found;
  return dense_matrices(draft, view, inner);
}

IndexExpr inner_batch(Draft& draft) {
  IndexExpr inner = 1;
  const ir::Node& node = draft.node();
  for (const ir::View& view : node.operands)
    if (const auto factor = batch_factor(offset_of(draft, view)); factor && inner.is_const(1)) inner = *factor;
  return inner;
}

int64_t choose_splits(Draft& draft, int64_t tiles, const IndexExpr& K, int chunk) {
  if (!K.is_const()) return 1;
  const int64_t wanted = 2 * static_cast<int64_t>(draft.caps.units);
  std::vector<int64_t> valid = {1};
  size_t best = 0;
  for (int64_t splits = 2; splits <= 64; ++splits) {
    if (K.constant() % (splits * chunk) != 0 || K.constant() / splits < 256) continue;
    if (valid[best] * tiles < wanted) best = valid.size();
    valid.push_back(splits);
  }
  size_t half = best;
  while (valid[half] > std::max<int64_t>(valid[best] / 2, 1)) --half;
  return draft.choices().pick("splits", {valid[best], valid[half], valid[std::min(best + 1, valid.size() - 1)]});
}

void split_depth(Draft& draft, int64_t splits) {
  ir::Node& node = draft.node();
  const IndexExpr batch = node.sizes[0], depth = ir::floordiv(node.reduce_sizes[0], splits), b = IndexExpr::loop(0);
  for (int operand = 0; operand < 2; ++operand) {
    ir::View& view = node.operands[operand];
    const int along = operand == 0 ? 2 : 1;  // The dimension of K.
    for (IndexExpr& e : view.coords)
      e = ir::substitute(e, {{b.symbol(), batch.is_const(1) ? IndexExpr(0) : ir::mod(b, batch)},
                             {IndexExpr::loop(along).symbol(), ir::floordiv(b, batch) * depth + IndexExpr::loop(along)}});
    view.sizes[0] = batch * splits;
    view.sizes[along] = depth;
  }
  node.reduce_sizes[0] = depth;
  split_output(draft, splits, {0, 1, 2});
}

namespace {

/// Returns the view in place, if its rows or columns are contiguous and begin at multiples of `chunk` elements.
/// Otherwise returns a copy that has this property. The copy's contiguous dimension is the one that is contiguous in
/// place.
Matrices chunked_matrices(Draft& draft, const ir::View& view, const IndexExpr& inner, int chunk) {
  const auto in_place = matrices_in_place(draft, view, inner);
  if (in_place && in_place->col.is_const(1) && multiples(draft, chunk, {in_place->row, in_place->outer, in_place->inner}))
    return *in_place;
  if (in_place && in_place->row.is_const(1) && multiples(draft, chunk, {in_place->col, in_place->outer, in_place->inner}))
    return *in_place;
  const size_t along = in_place && in_place->row.is_const(1) ? 1 : 2, across = 3 - along;
  ir::Shape strides(3, IndexExpr(1));
  strides[across] = ir::ceildiv(view.sizes[along], chunk) * chunk;
  strides[0] = strides[across] * view.sizes[across];
  const Operand copy =
      copied_operand(draft, view, view.sizes, {IndexExpr::loop(0), IndexExpr::loop(1), IndexExpr::loop(2)}, {}, strides);
  return {copy.input, strides[0] * inner, inner.is_const(1) ? IndexExpr(0) : strides[0], strides[1], strides[2]};
}

}  // namespace

void pass_matrices(Draft& draft, int chunk) {
  TemplateLaunch& launch = draft.launch();
  const ir::Node& node = draft.node();
  const IndexExpr M = node.sizes[1], N = node.sizes[2], K = node.reduce_sizes[0];
  const IndexExpr inner = inner_batch(draft);
  const bool chunked = chunk > 4;
  const auto operand = [&](const ir::View& view) {
    return chunked ? chunked_matrices(draft, view, inner, chunk) : matrices(draft, view, inner);
  };
  const Matrices a = operand(node.operands[0]), b = operand(node.operands[1]);
  const bool a_along_k = !a.row.is_const(1) || a.col.is_const(1), b_along_k = b.row.is_const(1) && !b.col.is_const(1);

  define(launch, {{"A_K_MAJOR", a_along_k}, {"B_K_MAJOR", b_along_k}});
  define(launch, "A_VEC4",
         chunked || ((a_along_k ? a.col : a.row).is_const(1) &&
                     multiples(draft, 4, {a_along_k ? K : M, a_along_k ? a.row : a.col, a.outer, a.inner})));
  define(launch, "B_VEC4",
         chunked || ((b_along_k ? b.row : b.col).is_const(1) &&
                     multiples(draft, 4, {b_along_k ? K : N, b_along_k ? b.col : b.row, b.outer, b.inner})));
  launch.buffers({{"a", a.input}, {"b", b.input}});
  define_alignment(draft, chunk);
  launch.args({{"M", M}, {"N", N}, {"K", K}, {"inner", inner}});
  pass_matrix(launch, "a", a);
  pass_matrix(launch, "b", b);
  launch.stores.align(true);
  store_along(launch, 2, launch.stores.width, 3);
}

}  // namespace ocl::schedule
