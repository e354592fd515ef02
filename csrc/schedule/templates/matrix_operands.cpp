// csrc/schedule/templates/matrix_operands.cpp: makes strided matrices of a view [b, i, j], in place or as a copy.
#include "csrc/schedule/templates/matrix_operands.h"

#include <algorithm>
#include <array>

#include "csrc/schedule/templates/group_tiles.h"

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

void pass_matrix(TemplateLaunch& launch, const std::string& name, const Matrices& matrix) {
  launch.arg(name + "_outer", matrix.outer);
  launch.arg(name + "_inner", matrix.inner);
  launch.arg(name + "_row", matrix.row);
  launch.arg(name + "_col", matrix.col);
}

Matrices matrices(TemplateContext& context, const ir::View& view, const IndexExpr& inner) {
  if (const auto found = matrices_in_place(context, view, inner)) return *found;
  return dense_matrices(context, view, inner);
}

namespace {

/// Makes a node that packs `view` into a new dense buffer. sizes[0] is the number of matrices.
ir::Node pack_node(TemplateContext& context, const ir::View& view, const ir::Shape& sizes, ir::DType stored) {
  ir::Node pack;
  pack.kind = ir::NodeKind::kPack;
  pack.origin = context.graph.nodes[context.node].origin;
  pack.operands = {view};
  pack.operands[0].sizes[0] = sizes[0];
  pack.sizes = sizes;
  ir::Buffer packed;
  packed.dtype = stored;
  packed.sizes = sizes;
  packed.strides = ir::contiguous_strides(sizes);
  pack.outputs = {context.graph.add_buffer(packed)};
  return pack;
}

}  // namespace

Matrices packed_panels(TemplateContext& context, const ir::View& view, const Matrices& matrix, const IndexExpr& inner,
                       int width) {
  constexpr int kRun = 128;  // Rows of a work-item: 32 KB of a panel with 64 columns.
  ir::Graph& graph = context.graph;
  const bool shared = matrix.outer.is_const(0) && matrix.inner.is_const(0);
  const IndexExpr count = shared ? IndexExpr(1) : view.sizes[0], K = view.sizes[1], N = view.sizes[2];
  ir::Node pack = pack_node(context, view, {count, ir::ceildiv(N, width), K, width}, graph.buffers[view.buffer].dtype);
  const IndexExpr stride = (*graph.buffers[pack.outputs[0]].strides)[0];

  TemplateLaunch launch;
  launch.kernel = KernelId::k_pack_item;
  launch.kind = "pack";
  launch.variant = std::to_string(width) + " columns";
  define_types(context, launch, context.caps.vector_floats);
  define(launch, "TN", width);
  define(launch, "K_RUN", kRun);
  define(launch, "B_LAYOUT", matrix.col.is_const(1) ? 0 : matrix.row.is_const(1) ? 1 : 2);
  launch.buffer("b", matrix.input);
  launch.args({{"N", N}, {"K", K}, {"inner", inner}});
  pass_matrix(launch, "b", matrix);
  launch.groups = {pack.sizes[1], ir::ceildiv(K, kRun), count};
  launch.store_width = context.caps.vector_floats;
  launch.store_coords = {0, 1, 2, 3};
  launch.store_dim = 3;
  const Matrices result{
      {pack.outputs[0], 0}, shared ? IndexExpr(0) : stride * inner, shared || inner.is_const(1) ? IndexExpr(0) : stride, 0, 0};
  context.before_launches.emplace(context.before.size(), std::move(launch));
  context.before.push_back(std::move(pack));
  return result;
}

IndexExpr inner_batch(TemplateContext& context) {
  IndexExpr inner = 1;
  const ir::Node node = context.graph.nodes[context.node];
  for (const ir::View& view : node.operands)
    if (const auto factor = batch_factor(offset_of(context, view)); factor && inner.is_const(1)) inner = *factor;
  return inner;
}

Blocks packed_blocks(TemplateContext& context, const ir::View& view, const Matrices& matrix, const IndexExpr& inner,
                     ProductOperand role, int terms) {
  constexpr int kWidth = 64, kBlockFloats = 2048, kItems = 256, kStepsOfGroup = 2;
  ir::Graph& graph = context.graph;
  const bool is_a = role == ProductOperand::kA;
  const bool halves = ir::size_bytes(graph.buffers[view.buffer].dtype) == 2;
  const int chunk = halves ? 8 : 4;
  const IndexExpr width = view.sizes[is_a ? 1 : 2], depth = view.sizes[is_a ? 2 : 1];
  const IndexExpr along_width = is_a ? matrix.row : matrix.col, along_depth = is_a ? matrix.col : matrix.row;
  const int major = along_depth.is_const(1) ? 1 : along_width.is_const(1) ? 0 : 2;
  const bool fragments = !halves && terms == 3 && is_a;
  const BlockForm form = fragments ? BlockForm::kFragments : halves && major == 0 ? BlockForm::kColumns : BlockForm::kRows;
  const int parts = !halves && terms == 3 && !is_a ? 2 : 1;
  const bool shared = matrix.outer.is_const(0) && matrix.inner.is_const(0);
  const IndexExpr count = shared ? IndexExpr(1) : view.sizes[0];
  const IndexExpr panels = ir::ceildiv(width, kWidth), steps = ir::ceildiv(depth, 8 * chunk);

  // Blocks are stored as bits, so their dtype does not matter.
  ir::Node pack = pack_node(context, view, {count, panels, steps, parts * kBlockFloats}, ir::DType::kF32);
  const IndexExpr stride = (*graph.buffers[pack.outputs[0]].strides)[0];

  TemplateLaunch launch;
  launch.kernel = KernelId::k_pack_group;
  launch.kind = "pack";
  launch.variant = fragments ? "fragments" : form == BlockForm::kColumns ? "columns" : "rows";
  define_types(context, launch, 4);
  define(launch, "FORM", static_cast<int>(form));
  define(launch, "MAJOR", major);
  define(launch, "CHUNKED",
         major < 2 && multiples(context, chunk, {major == 1 ? along_width : along_depth, matrix.outer, matrix.inner}));
  define(launch, "TERMS", terms);
  launch.buffer("x", matrix.input);
  launch.args({{"width", width}, {"depth", depth}, {"inner", inner}, {"outer", matrix.outer}});
  launch.args({{"inner_stride", matrix.inner}, {"along_width", along_width}, {"along_depth", along_depth}});
  const IndexExpr pairs = ir::ceildiv(steps, kStepsOfGroup);
  launch.groups = {major == 1 ? pairs : panels, major == 1 ? panels : pairs, count};
  launch.local = {kItems, 1, 1};
  launch.store_width = 4;
  launch.store_aligned = true;
  launch.store_coords = {0, 1, 2, 3};
  launch.store_dim = 3;
  context.before_launches.emplace(context.before.size(), std::move(launch));
  context.before.push_back(std::move(pack));
  return {{context.before.back().outputs[0], 0}, shared ? IndexExpr(0) : stride, form};
}

int64_t choose_splits(TemplateContext& context, int64_t tiles, const IndexExpr& K, int chunk) {
  if (!K.is_const()) return 1;
  const int64_t wanted = 2 * static_cast<int64_t>(context.caps.units);
  std::vector<int64_t> valid = {1};
  size_t best = 0;
  for (int64_t splits = 2; splits <= 64; ++splits) {
    if (K.constant() % (splits * chunk) != 0 || K.constant() / splits < 256) continue;
    if (valid[best] * tiles < wanted) best = valid.size();
    valid.push_back(splits);
  }
  size_t half = best;
  while (valid[half] > std::max<int64_t>(valid[best] / 2, 1)) --half;
  return context.choices.pick("splits", {valid[best], valid[half], valid[std::min(best + 1, valid.size() - 1)]});
}

void split_depth(TemplateContext& context, int64_t splits) {
  ir::Node& node = context.graph.nodes[context.node];
  const IndexExpr batch = node.sizes[0], depth = ir::floordiv(node.reduce_sizes[0], splits), b = IndexExpr::loop(0);
  for (int operand = 0; operand < 2; ++operand) {
    ir::View& view = node.operands[static_cast<size_t>(operand)];
    const int along = operand == 0 ? 2 : 1;  // The dimension of K.
    for (IndexExpr& e : view.coords)
      e = ir::substitute(e, {{b.symbol(), batch.is_const(1) ? IndexExpr(0) : ir::mod(b, batch)},
                             {IndexExpr::loop(along).symbol(), ir::floordiv(b, batch) * depth + IndexExpr::loop(along)}});
    view.sizes[0] = batch * splits;
    view.sizes[static_cast<size_t>(along)] = depth;
  }
  node.reduce_sizes[0] = depth;
  split_output(context, splits, {0, 1, 2});
}

namespace {

/// Returns the view in place, if its rows or columns are contiguous and begin at multiples of `chunk` elements.
/// Otherwise returns a copy that has this property. The copy's contiguous dimension is the one that is contiguous in
/// place.
Matrices chunked_matrices(TemplateContext& context, const ir::View& view, const IndexExpr& inner, int chunk) {
  const auto in_place = matrices_in_place(context, view, inner);
  if (in_place && in_place->col.is_const(1) && multiples(context, chunk, {in_place->row, in_place->outer, in_place->inner}))
    return *in_place;
  if (in_place && in_place->row.is_const(1) && multiples(context, chunk, {in_place->col, in_place->outer, in_place->inner}))
    return *in_place;
  const size_t along = in_place && in_place->row.is_const(1) ? 1 : 2, across = 3 - along;
  ir::Shape strides(3, IndexExpr(1));
  strides[across] = ir::ceildiv(view.sizes[along], chunk) * chunk;
  strides[0] = strides[across] * view.sizes[across];
  const Operand copy =
      copied_operand(context, view, view.sizes, {IndexExpr::loop(0), IndexExpr::loop(1), IndexExpr::loop(2)}, {}, strides);
  return {copy.input, strides[0] * inner, inner.is_const(1) ? IndexExpr(0) : strides[0], strides[1], strides[2]};
}

}  // namespace

void pass_matrices(TemplateContext& context, TemplateLaunch& launch, int chunk) {
  const ir::Node node = context.graph.nodes[context.node];
  const IndexExpr M = node.sizes[1], N = node.sizes[2], K = node.reduce_sizes[0];
  const IndexExpr inner = inner_batch(context);
  const bool chunked = chunk > 4;
  const auto operand = [&](const ir::View& view) {
    return chunked ? chunked_matrices(context, view, inner, chunk) : matrices(context, view, inner);
  };
  const Matrices a = operand(node.operands[0]), b = operand(node.operands[1]);
  const bool a_along_k = !a.row.is_const(1) || a.col.is_const(1), b_along_k = b.row.is_const(1) && !b.col.is_const(1);

  define(launch, "A_K_MAJOR", a_along_k);
  define(launch, "B_K_MAJOR", b_along_k);
  define(launch, "A_VEC4",
         chunked || ((a_along_k ? a.col : a.row).is_const(1) &&
                     are_multiples_of_4(context, {a_along_k ? K : M, a_along_k ? a.row : a.col, a.outer, a.inner})));
  define(launch, "B_VEC4",
         chunked || ((b_along_k ? b.row : b.col).is_const(1) &&
                     are_multiples_of_4(context, {b_along_k ? K : N, b_along_k ? b.col : b.row, b.outer, b.inner})));
  launch.buffers({{"a", a.input}, {"b", b.input}});
  define_alignment(context, launch, chunk);
  launch.args({{"M", M}, {"N", N}, {"K", K}, {"inner", inner}});
  pass_matrix(launch, "a", a);
  pass_matrix(launch, "b", b);
  launch.store_aligned = true;
  launch.store_coords = {0, 1, 2};
  launch.store_dim = 2;
}

}  // namespace ocl::schedule
