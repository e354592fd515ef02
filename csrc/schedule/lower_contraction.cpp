// csrc/schedule/lower_contraction.cpp: turns contractions and convolutions into sums over masked loads.
#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/schedule/choose_template.h"
#include "csrc/schedule/loops.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

using ir::ConvolveKind;

namespace {

class Writer {
 public:
  Writer(const ir::Graph& graph, Node& node) : graph_(graph), node_(node) {}

  int push(OpCode code, DType dtype, std::vector<int> args, ir::BufferId buffer = ir::kNone, Coords index = {}) {
    return ir::push(node_.body, {code, dtype, std::move(args), {}, buffer, std::move(index)});
  }
  int op(const char* name, DType dtype, std::vector<int> args) { return push(ir::op_code(name), dtype, std::move(args)); }
  int index(const IndexExpr& e) { return push(OpCode::kIndex, DType::kI64, {}, ir::kNone, {e}); }
  int constant(int64_t value) {
    const int id = push(OpCode::kConstant, DType::kI64, {});
    node_.body.ops[id].constant = {false, 0, value};
    return id;
  }
  int both(int a, int b) { return a == ir::kNone ? b : op("logical_and", DType::kBool, {a, b}); }

  /// Adds the conditions 0 <= e < size to `mask`, unless they are proved. Returns the new mask.
  int inside(int mask, const IndexExpr& e, const IndexExpr& size, const ir::Ranges& ranges) {
    if (!ranges.known_nonnegative(e)) mask = both(mask, op("ge", DType::kBool, {index(e), constant(0)}));
    if (!ranges.known_less(e, size)) mask = both(mask, op("lt", DType::kBool, {index(e), index(size)}));
    return mask;
  }
  int divides(int mask, const IndexExpr& e, int divisor) {
    if (divisor == 1) return mask;
    return both(mask, op("eq", DType::kBool, {index(mod(e, divisor)), constant(0)}));
  }

  /// Loads the view's element at `coords`, converted to the type of the sum.
  int load(const ir::View& view, const Coords& coords, int mask, DType type, const ir::Ranges& ranges) {
    LoopMap map;
    for (size_t d = 0; d < coords.size(); ++d) map.emplace(ir::Symbol{SymbolKind::kLoop, static_cast<int>(d)}, coords[d]);
    const DType stored = compute_type(graph_.buffers[view.buffer].dtype);
    std::vector<int> args;
    if (mask != ir::kNone) args.push_back(mask);
    const int value = push(OpCode::kLoad, stored, args, view.buffer, substitute(view.coords, map, ranges));
    return stored == type ? value : push(OpCode::kCast, type, {value});
  }

 private:
  const ir::Graph& graph_;
  Node& node_;
};

}  // namespace

Node lower_contraction(const ir::Graph& graph, const Node& node) {
  Node result;
  result.kind = ir::NodeKind::kReduce;
  result.origin = node.origin;
  result.sizes = node.sizes;
  result.reduction = ir::reduction_code("sum");
  const DType out = graph.buffers[node.outputs[0]].dtype;
  const DType type = promote(compute_type(out), compute_type(graph.buffers[node.operands[0].buffer].dtype));
  const IndexExpr i0 = IndexExpr::loop(0), i1 = IndexExpr::loop(1), i2 = IndexExpr::loop(2), i3 = IndexExpr::loop(3);
  const IndexExpr r0 = IndexExpr::reduce(0), r1 = IndexExpr::reduce(1), r2 = IndexExpr::reduce(2);
  const ir::View &a = node.operands[0], &b = node.operands[1];
  Coords at_a, at_b;
  if (node.kind == ir::NodeKind::kContract) {
    result.reduce_sizes = node.reduce_sizes;
    at_a = {i0, i1, r0};
    at_b = {i0, r0, i2};
  } else {
    const ir::ConvolveAttrs& c = node.convolve;
    const int g = c.groups;
    // r0, r1, r2: channel within the group, filter row, filter column.
    if (c.kind == ConvolveKind::kForward) {
      result.reduce_sizes = {b.sizes[1], b.sizes[2], b.sizes[3]};
      const IndexExpr group = floordiv(i1, floordiv(b.sizes[0], g));
      at_a = {i0, group * b.sizes[1] + r0, i2 * c.stride[0] - c.padding[0] + r1 * c.dilation[0],
              i3 * c.stride[1] - c.padding[1] + r2 * c.dilation[1]};
      at_b = {i1, r0, r1, r2};
    } else if (c.kind == ConvolveKind::kData) {
      // r0, r1, r2: filter within the group, filter row, filter column.
      const IndexExpr filters = floordiv(b.sizes[0], g), group = floordiv(i1, b.sizes[1]);
      result.reduce_sizes = {filters, b.sizes[2], b.sizes[3]};
      at_a = {i0, group * filters + r0, i2 + c.padding[0] - r1 * c.dilation[0],
              i3 + c.padding[1] - r2 * c.dilation[1]};  // the stride is applied below
      at_b = {group * filters + r0, mod(i1, b.sizes[1]), r1, r2};
    } else {
      // r0, r1, r2: image, output row, output column.
      result.reduce_sizes = {b.sizes[0], b.sizes[2], b.sizes[3]};
      const IndexExpr group = floordiv(i0, floordiv(b.sizes[1], g));
      at_a = {r0, group * node.sizes[1] + i1, r1 * c.stride[0] - c.padding[0] + i2 * c.dilation[0],
              r2 * c.stride[1] - c.padding[1] + i3 * c.dilation[1]};
      at_b = {r0, i0, r1, r2};
    }
  }
  for (IndexExpr& size : result.reduce_sizes) size = simplify(size, graph.ranges());
  const ir::Ranges ranges = loops_of(result).ranges(graph);
  Writer writer(graph, result);
  int mask = ir::kNone;
  if (node.kind == ir::NodeKind::kConvolve) {
    for (const int d : {2, 3}) {
      if (node.convolve.kind == ConvolveKind::kData) {
        const int stride = node.convolve.stride[d - 2];
        mask = writer.divides(mask, at_a[d], stride);
        at_a[d] = floordiv(at_a[d], stride);
      }
      at_a[d] = simplify(at_a[d], ranges);
      mask = writer.inside(mask, at_a[d], a.sizes[d], ranges);
    }
  }
  const int x = writer.load(a, at_a, mask, type, ranges), w = writer.load(b, at_b, ir::kNone, type, ranges);
  result.reduced = {writer.op("mul", type, {x, w})};
  Coords store;
  for (size_t d = 0; d < result.sizes.size(); ++d) store.push_back(IndexExpr::loop(static_cast<int>(d)));
  result.stores.push_back({node.outputs[0], store, 0});
  return result;
}

}  // namespace ocl::schedule
