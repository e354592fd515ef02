// csrc/schedule/column_parts.cpp: see column_parts.h.
#include "csrc/schedule/column_parts.h"

#include <algorithm>

#include "csrc/ir/append.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;
using ir::Node;

/// Returns a Map that stores all of the buffer `part` into `whole`, from column `first` on.
Node store_columns(const ir::Graph& graph, ir::BufferId part, ir::BufferId whole, int64_t first) {
  Node map;
  map.sizes = graph.buffers[part].sizes;
  std::vector<IndexExpr> at = ir::loops(3);
  const int value = push_load(map.body, ir::compute_type(graph.buffers[part].dtype), part, at);
  at[2] = at[2] + first;
  map.stores = {{whole, at, value}};
  return map;
}

}  // namespace

bool cut_columns(ir::Graph& graph, ir::NodeId contraction, int64_t columns) {
  const Node whole = graph.nodes[contraction];
  const ir::BufferId result = whole.outputs[0];
  if (std::ranges::any_of(graph.nodes, [&](const Node& node) {
        return node.kind == ir::NodeKind::kMap && std::ranges::count(ir::reads(node), result) > 0;
      }))
    return false;
  // The kernels store into the whole result, so vectors are as wide as its rows allow.
  const ir::Shape strides = graph.buffers[result].strides.value_or(ir::contiguous_strides(whole.sizes));
  std::vector<Node> parts;
  const int64_t all = whole.sizes[2].constant();
  for (int64_t first = 0; first < all; first += columns) {
    Node part = whole;
    ir::View& matrix = part.operands[1];
    part.sizes[2] = matrix.sizes[2] = std::min(columns, all - first);
    ir::Ranges ranges = graph.ranges();
    for (int d = 0; d < 3; ++d) ranges.set_extent(IndexExpr::loop(d).symbol(), matrix.sizes[static_cast<size_t>(d)]);
    for (IndexExpr& coord : matrix.coords)
      coord = ir::simplify(ir::substitute(coord, {{IndexExpr::loop(2).symbol(), IndexExpr::loop(2) + first}}), ranges);
    ir::Buffer buffer;
    buffer.dtype = graph.buffers[result].dtype;
    buffer.sizes = part.sizes;
    buffer.strides = strides;
    part.outputs = {graph.add_buffer(std::move(buffer))};
    Node map = store_columns(graph, part.outputs[0], result, first);
    map.origin = whole.origin;
    parts.push_back(std::move(part));
    parts.push_back(std::move(map));
  }
  const auto at = graph.nodes.erase(graph.nodes.begin() + contraction);
  graph.nodes.insert(at, std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
  return true;
}

}  // namespace ocl::schedule
