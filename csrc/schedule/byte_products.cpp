// csrc/schedule/byte_products.cpp: see byte_products.h.
#include "csrc/schedule/byte_products.h"

#include <algorithm>

#include "csrc/ir/append.h"
#include "csrc/schedule/loops.h"

namespace ocl::schedule {
namespace {

constexpr int64_t kExactDepth = 1024;  // 1024 * 128 * 128 = 2^24.
constexpr int64_t kFewRows = 8;

bool is_expanded(const ir::Graph& graph, const Node& node) {
  if (node.kind != ir::NodeKind::kContract || graph.buffers[node.outputs[0]].dtype != DType::kI32) return false;
  const IndexExpr &rows = node.sizes[1], &depth = node.reduce_sizes[0];
  return !(rows.is_const() && rows.constant() <= kFewRows) && depth.is_const() && depth.constant() > 0;
}

class Slices {
 public:
  Slices(ir::Graph& graph, const Node& product, std::vector<Node>& nodes) : graph_(graph), product_(product), nodes_(nodes) {}

  void append() {
    Node total = like_product();
    total.sizes = product_.sizes;
    const Coords here = ir::loops(3);
    int sum = ir::kNone;
    const int64_t depth = product_.reduce_sizes[0].constant();
    for (int64_t begin = 0; begin < depth; begin += kExactDepth) {
      const BufferId part = slice(begin, std::min(kExactDepth, depth - begin));
      const int value = push(total.body, OpCode::kCast, DType::kI32, {push_load(total.body, DType::kF32, part, here)});
      sum = sum == ir::kNone ? value : push(total.body, OpCode::k_add, DType::kI32, {sum, value});
    }
    total.stores.push_back({product_.outputs[0], here, sum});
    nodes_.push_back(std::move(total));
  }

 private:
  Node like_product() const {
    Node node;
    node.origin = product_.origin;
    return node;
  }

  BufferId add_buffer(DType dtype, const ir::Shape& sizes) {
    ir::Buffer buffer;
    buffer.dtype = dtype;
    buffer.sizes = sizes;
    return graph_.add_buffer(std::move(buffer));
  }

  /// Appends the product of `depth` elements of the depth. Returns its buffer.
  BufferId slice(int64_t begin, int64_t depth) {
    Node part = product_;
    part.reduce_sizes = {depth};
    part.operands = {converted(product_.operands[0], 2, begin, depth), converted(product_.operands[1], 1, begin, depth)};
    part.outputs = {add_buffer(DType::kF32, product_.sizes)};
    nodes_.push_back(part);
    return part.outputs[0];
  }

  /// Appends a Map that converts a part of an operand. along: its dimension that is the depth.
  ir::View converted(const ir::View& operand, int along, int64_t begin, int64_t depth) {
    Node map = like_product();
    map.sizes = operand.sizes;
    map.sizes[along] = depth;
    LoopMap loops;
    for (int d = 0; d < 3; ++d) loops.emplace(IndexExpr::loop(d).symbol(), IndexExpr::loop(d) + (d == along ? begin : 0));
    const BufferId result = add_buffer(DType::kBF16, map.sizes);
    const Coords coords = substitute(operand.coords, loops, graph_.ranges(&map));
    const int loaded = push_load(map.body, compute_type(DType::kI8), operand.buffer, coords);
    const int value = push(map.body, OpCode::kCast, DType::kF32, {loaded});
    map.stores.push_back({result, ir::loops(3), value});
    ir::View view{result, map.sizes, ir::loops(3)};
    nodes_.push_back(std::move(map));
    return view;
  }

  ir::Graph& graph_;
  const Node& product_;
  std::vector<Node>& nodes_;
};

}  // namespace

void byte_products(Schedule& schedule, const Caps& caps) {
  if (caps.kernels.has(KernelId::k_gemm_pairs_item, KernelType::kInt8)) return;
  ir::Graph& graph = schedule.graph;
  std::vector<Node> nodes;
  for (const Node& node : graph.nodes)
    if (is_expanded(graph, node))
      Slices(graph, node, nodes).append();
    else
      nodes.push_back(node);
  graph.nodes = std::move(nodes);
}

}  // namespace ocl::schedule
