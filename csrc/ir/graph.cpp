// csrc/ir/graph.cpp: the buffers that a node reads and writes; strides and offsets of views.
#include "csrc/ir/graph.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl::ir {

BufferId Graph::add_buffer(Buffer buffer) {
  const BufferId id = static_cast<BufferId>(buffers.size());
  if (buffer.name.empty())
    buffer.name = buffer.role == BufferRole::kInput ? "in" + std::to_string(buffer.input) : "buf" + std::to_string(id);
  std::replace_if(buffer.name.begin(), buffer.name.end(), [](unsigned char c) { return c <= ' ' || c == '#'; }, '_');
  buffers.push_back(std::move(buffer));
  return id;
}

NodeId Graph::add_node(Node node) {
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size()) - 1;
}

Ranges Graph::ranges(const Node* node) const {
  Ranges ranges;
  for (int i = 0; i < symbols; ++i) {
    const size_t at = static_cast<size_t>(i);
    ranges.set({SymbolKind::kSize, i}, at < symbol_ranges.size() ? symbol_ranges[at] : Range{});
  }
  if (node) {
    for (size_t i = 0; i < node->sizes.size(); ++i) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(i)}, node->sizes[i]);
    for (size_t i = 0; i < node->reduce_sizes.size(); ++i)
      ranges.set_extent({SymbolKind::kReduce, static_cast<int>(i)}, node->reduce_sizes[i]);
  }
  return ranges;
}

namespace {

void add_once(std::vector<BufferId>& list, BufferId buffer) {
  if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
}

}  // namespace

std::vector<BufferId> reads(const Node& node) {
  std::vector<BufferId> result;
  for (const Op& op : node.body.ops)
    if (op.code == OpCode::kLoad) add_once(result, op.buffer);
  for (const View& view : node.operands) add_once(result, view.buffer);
  return result;
}

std::vector<BufferId> writes(const Node& node) {
  std::vector<BufferId> result;
  for (const Store& store : node.stores) add_once(result, store.buffer);
  for (const BufferId buffer : node.outputs) add_once(result, buffer);
  return result;
}

Shape contiguous_strides(const Shape& sizes) {
  Shape strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * (sizes[i].is_const(0) ? IndexExpr(1) : sizes[i]);
  return strides;
}

Shape squeezed(const Shape& of, const Shape& sizes) {
  Shape result;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!sizes[d].is_const(1)) result.push_back(of[d]);
  return result;
}

IndexExpr linear_offset(const Buffer& buffer, const std::vector<IndexExpr>& coords, const Ranges& ranges) {
  OCL_ASSERT(buffer.strides && buffer.strides->size() == coords.size(),
             "buffer " + buffer.name + " needs a stride per coordinate");
  IndexExpr offset = 0;
  for (size_t i = 0; i < coords.size(); ++i) offset = offset + coords[i] * (*buffer.strides)[i];
  return simplify(offset, ranges);
}

std::optional<Strided> strided(const Graph& graph, const View& view) {
  return strided(graph, graph.buffers.at(static_cast<size_t>(view.buffer)), view);
}

std::optional<Strided> strided(const Graph& graph, const Buffer& buffer, const View& view) {
  Ranges ranges = graph.ranges();
  for (size_t i = 0; i < view.sizes.size(); ++i) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(i)}, view.sizes[i]);
  Strided result{{}, linear_offset(buffer, view.coords, ranges)};
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const auto affine = affine_in(result.offset, {SymbolKind::kLoop, static_cast<int>(i)});
    if (!affine || affine->coefficient.uses(SymbolKind::kLoop)) return {};
    result.strides.push_back(affine->coefficient);
    result.offset = affine->rest;
  }
  if (result.offset.uses(SymbolKind::kLoop)) return {};
  return result;
}

}  // namespace ocl::ir
