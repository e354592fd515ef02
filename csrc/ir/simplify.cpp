// csrc/ir/simplify.cpp: simplifies each body (simplify_body.cpp), merges equal nodes and removes dead nodes. Buffers
// keep their ids; an unused buffer stays in the table.
#include "csrc/ir/simplify.h"

#include <algorithm>
#include <map>
#include <set>

#include "csrc/ir/graph.h"
#include "csrc/ir/simplify_body.h"

namespace ocl::ir {

namespace {

Shape simplified(const Shape& exprs, const Ranges& ranges) {
  Shape result;
  for (const IndexExpr& e : exprs) result.push_back(simplify(e, ranges));
  return result;
}

/// True for an intermediate buffer that exactly one node writes.
bool is_plain_result(const Graph& graph, BufferId id, const std::map<BufferId, int>& writers) {
  const Buffer& buffer = graph.buffers[id];
  return buffer.role == BufferRole::kIntermediate && writers.at(id) == 1;
}

/// Returns a text of what the node computes, without the buffers that it writes. Each buffer that the node reads is named with
/// the number of writes to it so far, because its contents change with each write.
std::string computation(const Graph& graph, const Node& node, const std::map<BufferId, int>& version) {
  Graph alone;
  Node masked = node;
  std::string results;
  for (Store& store : masked.stores) {
    const Buffer& buffer = graph.buffers[store.buffer];
    results += std::string(name(buffer.dtype));
    for (const IndexExpr& size : buffer.sizes) results += "," + size.str();
    results += ";";
    store.buffer = 0;
  }
  for (BufferId& output : masked.outputs) {
    results += std::string(name(graph.buffers[output].dtype)) + ";";
    output = 0;
  }
  for (const BufferId id : reads(node)) {
    const auto it = version.find(id);
    results += std::to_string(id) + "@" + std::to_string(it == version.end() ? 0 : it->second) + ";";
  }
  alone.nodes.push_back(std::move(masked));
  return alone.str(false) + results;
}

void replace_buffers(Graph& graph, const std::map<BufferId, BufferId>& with) {
  const auto replace = [&](BufferId& id) {
    for (auto it = with.find(id); it != with.end(); it = with.find(id)) id = it->second;
  };
  for (Node& node : graph.nodes) {
    for (Op& op : node.body.ops)
      if (op.code == OpCode::kLoad) replace(op.buffer);
    for (View& view : node.operands) replace(view.buffer);
  }
  for (Output& output : graph.outputs) replace(output.buffer);
}

/// Merges nodes that compute the same. Calls are not merged, because an eager op may draw random numbers.
bool merge_equal_nodes(Graph& graph) {
  std::map<BufferId, int> writers, version;
  for (const Node& node : graph.nodes)
    for (const BufferId id : writes(node)) ++writers[id];
  std::map<std::string, size_t> seen;
  bool changed = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::vector<BufferId> written = writes(node);
    const bool candidate = node.kind != NodeKind::kCall && std::all_of(written.begin(), written.end(), [&](BufferId id) {
                             return is_plain_result(graph, id, writers);
                           });
    for (const BufferId id : written) ++version[id];
    if (!candidate) continue;
    const auto [it, added] = seen.emplace(computation(graph, node, version), i);
    if (added) continue;
    const std::vector<BufferId> first = writes(graph.nodes[it->second]);
    if (first.size() != written.size()) continue;
    // Two results of the graph must stay two tensors, because the caller may write to one of them. Two buffers with
    // different promised layouts cannot become one.
    const auto is_output = [&](BufferId id) {
      return std::any_of(graph.outputs.begin(), graph.outputs.end(), [&](const Output& output) { return output.buffer == id; });
    };
    bool fits = true;
    for (size_t k = 0; k < first.size(); ++k) {
      auto& a = graph.buffers[first[k]].strides;
      const auto& b = graph.buffers[written[k]].strides;
      if ((a && b && !(*a == *b)) || (is_output(first[k]) && is_output(written[k]))) fits = false;
    }
    if (!fits) continue;
    std::map<BufferId, BufferId> step;
    for (size_t k = 0; k < first.size(); ++k) {
      step[written[k]] = first[k];
      auto& a = graph.buffers[first[k]].strides;
      if (!a) a = graph.buffers[written[k]].strides;
    }
    // The buffers are replaced at once, so that this walk also merges nodes that have become equal.
    replace_buffers(graph, step);
    changed = true;
  }
  return changed;
}

/// Removes nodes whose results no node and no output uses, and that write to no input.
bool drop_dead_nodes(Graph& graph) {
  std::set<BufferId> live;
  for (const Output& output : graph.outputs) live.insert(output.buffer);
  for (const BufferId id : graph.inputs) live.insert(id);
  std::vector<Node> kept;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& node = graph.nodes[i];
    std::erase_if(node.stores, [&](const Store& store) { return !live.count(store.buffer); });
    const std::vector<BufferId> written = writes(node);
    const bool is_live = std::any_of(written.begin(), written.end(), [&](BufferId id) { return live.count(id) > 0; }) ||
                         (node.kind == NodeKind::kCall && (node.outputs.empty() || node.waits_for != kNone));
    if (!is_live) continue;
    for (const BufferId id : reads(node)) live.insert(id);
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  const bool changed = kept.size() != graph.nodes.size();
  graph.nodes = std::move(kept);
  return changed;
}

}  // namespace

bool simplify(Graph& graph) {
  const std::string before = graph.str();
  for (Node& node : graph.nodes) {
    const Ranges sizes = graph.ranges();
    node.sizes = simplified(node.sizes, sizes);
    node.reduce_sizes = simplified(node.reduce_sizes, sizes);
    for (View& view : node.operands) {
      Ranges ranges = sizes;
      for (size_t i = 0; i < view.sizes.size(); ++i) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(i)}, view.sizes[i]);
      view.coords = simplified(view.coords, ranges);
    }
    simplify_body(graph, node);
  }
  merge_equal_nodes(graph);
  if (drop_dead_nodes(graph))
    // Removing a store may leave dead ops in its body.
    for (Node& node : graph.nodes) simplify_body(graph, node);
  return graph.str() != before;
}

}  // namespace ocl::ir
