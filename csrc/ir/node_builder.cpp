// csrc/ir/node_builder.cpp: the functions of Builder that add a node which is no loop nest.
#include "csrc/ir/builder.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

/// True if a stride would be negative. PyTorch tensors have no negative strides, so a flipped view cannot be an operand
/// of an eager op.
bool runs_backwards(const Value& x) {
  for (const IndexExpr& coord : x.coords) {
    for (size_t d = 0; d < x.sizes.size(); ++d) {
      const auto affine = affine_in(coord, {SymbolKind::kLoop, static_cast<int>(d)});
      if (affine && affine->coefficient.is_const() && affine->coefficient.constant() < 0) return true;
    }
  }
  return false;
}

/// Returns a node with these operands. Values that are no views of memory are computed by nodes before it.
Node node_of(Builder& b, NodeKind kind, const std::vector<Value>& operands) {
  Node node;
  node.kind = kind;
  node.origin = b.origin;
  for (const Value& x : operands) node.operands.push_back(as_view(x.kind == Value::Kind::kView ? x : b.copy(x)));
  return node;
}

/// Adds the node, whose outputs are `results`. Its sizes are those of the first one.
std::vector<Value> add(Builder& b, Node node, std::vector<Value> results) {
  for (const Value& result : results) node.outputs.push_back(result.buffer);
  node.sizes = results[0].sizes;
  b.graph.add_node(std::move(node));
  return results;
}

}  // namespace

Value Builder::contract(const Value& a, const Value& b, DType dtype) {
  OCL_ASSERT(a.sizes.size() == 3 && b.sizes.size() == 3, "contract takes a [b, m, k] and b [b, k, n]");
  Node node = node_of(*this, NodeKind::kContract, {a, b});
  node.reduce_sizes = {a.sizes[2]};
  node.operands[1].sizes = {a.sizes[0], a.sizes[2], b.sizes[2]};  // The caller guarantees that these sizes are equal.
  node.reduced_precision = reduced_precision;
  return add(*this, std::move(node), {new_buffer(dtype, {a.sizes[0], a.sizes[1], b.sizes[2]})})[0];
}

Value Builder::convolve(const Value& x, const Value& w, const ConvolveAttrs& attrs, const Shape& sizes, DType dtype) {
  Node node = node_of(*this, NodeKind::kConvolve, {x, w});
  node.convolve = attrs;
  node.reduced_precision = reduced_convolutions;
  return add(*this, std::move(node), {new_buffer(dtype, sizes)})[0];
}

Value Builder::fft(const Value& real, const std::optional<Value>& imaginary, const FftAttrs& attrs) {
  OCL_ASSERT(real.sizes.size() == 4, "an fft takes operands of four dimensions");
  Node node = node_of(*this, NodeKind::kFft, imaginary ? std::vector<Value>{real, *imaginary} : std::vector<Value>{real});
  node.fft = attrs;
  const Shape& s = real.sizes;
  const IndexExpr n = fft_results(attrs.form, s[1].constant());
  const Value result = new_buffer(real.dtype, {s[0], simplify(n * s[2] * s[3] * 2, graph.ranges())});
  // With known strides, a result of the graph with other dimensions can be a window on this buffer.
  graph.buffers[static_cast<size_t>(result.buffer)].strides = contiguous_strides(result.sizes);
  add(*this, std::move(node), {result});
  return reshape(result, {s[0], n, s[2], s[3], 2});
}

std::vector<Value> Builder::sort(const std::vector<Value>& operands, const SortAttrs& attrs) {
  OCL_ASSERT(!operands.empty() && operands[0].sizes.size() == 2, "a sort takes keys of two dimensions");
  Node node = node_of(*this, NodeKind::kSort, operands);
  node.sort = attrs;
  const IndexExpr &rows = operands[0].sizes[0], &n = operands[0].sizes[1], blocks = ceildiv(n, attrs.block);
  if (attrs.step == SortStep::kCount) return add(*this, std::move(node), {new_buffer(DType::kI32, {rows, kDigits, blocks})});
  const Shape sizes = {rows, attrs.step == SortStep::kMove ? n : simplify(blocks * attrs.keep, graph.ranges())};
  return add(*this, std::move(node), {new_buffer(operands[0].dtype, sizes), new_buffer(DType::kI32, sizes)});
}

std::vector<Value> Builder::attention(const std::vector<Value>& operands, const AttentionAttrs& attrs) {
  Node node = node_of(*this, NodeKind::kAttention, operands);
  node.attention = attrs;
  node.reduced_precision = reduced_precision;
  OCL_ASSERT(operands.size() >= 3 && operands[0].sizes.size() == 4, "attention takes q, k and v of four dimensions");
  const Shape &q = operands[0].sizes, &k = operands[1].sizes, &v = operands[2].sizes;
  std::vector<Value> results;
  if (attrs.kind == AttentionKind::kForward) {
    results.push_back(new_buffer(operands[0].dtype, {q[0], q[1], q[2], v[3]}));
    results.push_back(new_buffer(DType::kF32, {2, q[0], q[1], q[2]}));
  } else {
    if (attrs.kind != AttentionKind::kKeyValue) results.push_back(new_buffer(operands[0].dtype, q));
    if (attrs.kind != AttentionKind::kQuery) {
      results.push_back(new_buffer(operands[1].dtype, k));
      results.push_back(new_buffer(operands[2].dtype, v));
    }
  }
  return add(*this, std::move(node), std::move(results));
}

std::vector<Value> Builder::call(int call, const std::vector<Value>& args, const std::vector<std::pair<DType, Shape>>& results,
                                 const std::vector<Shape>& strides, int waits_for) {
  Node node = node_of(*this, NodeKind::kCall, {});
  node.call = call;
  node.waits_for = waits_for;
  for (const Value& arg : args) {
    const bool is_window = arg.kind == Value::Kind::kView && !runs_backwards(arg);
    node.operands.push_back(as_view(is_window ? arg : copy(arg)));
  }
  std::vector<Value> values;
  for (size_t i = 0; i < results.size(); ++i) {
    values.push_back(new_buffer(results[i].first, results[i].second));
    if (i < strides.size() && strides[i].size() == results[i].second.size()) graph.buffers.back().strides = strides[i];
    node.outputs.push_back(values.back().buffer);
  }
  graph.add_node(std::move(node));
  return values;
}

}  // namespace ocl::ir
