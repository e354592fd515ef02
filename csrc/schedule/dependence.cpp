// csrc/schedule/dependence.cpp: finds dependences between nodes by the buffers they access, and paths between nodes.
#include "csrc/schedule/dependence.h"

#include <algorithm>
#include <functional>
#include <map>

#include "csrc/schedule/body.h"
#include "csrc/schedule/few_rows.h"
#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void Dependences::add(int first, int second) {
  if (first == second) return;
  const auto insert = [](std::vector<int>& list, int value) {
    const auto it = std::lower_bound(list.begin(), list.end(), value);
    if (it == list.end() || *it != value) list.insert(it, value);
  };
  insert(after[first], second);
  insert(before[second], first);
}

std::vector<ir::BufferId> buffers_read(const Schedule& schedule, ir::NodeId node) {
  std::vector<ir::BufferId> result = ir::reads(schedule.graph.nodes[node]);
  const auto launch = schedule.launches.find(node);
  if (launch != schedule.launches.end()) {
    // The launch says what the kernel really reads, for example a packed copy instead of the weights.
    result.clear();
    for (const TemplateLaunch::Input& input : launch->second.inputs)
      if (input.buffer != ir::kNone) result.push_back(input.buffer);
    for (const ir::Op& op : schedule.graph.nodes[node].body.ops)
      if (op.code == ir::OpCode::kLoad) result.push_back(op.buffer);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<ir::NodeId> nodes_to_evaluate(const Schedule& schedule, const Group& group) {
  const std::vector<ir::Node>& all = schedule.graph.nodes;
  std::set<ir::NodeId> done;  // Nodes that other groups compute, or that are listed.
  for (const Group& other : schedule.groups)
    for (const ir::NodeId node : other.nodes()) done.insert(node);
  std::vector<ir::NodeId> result;
  const std::function<void(ir::NodeId)> add = [&](ir::NodeId node) {
    for (const ir::BufferId read : ir::reads(all[node]))
      for (ir::NodeId i = 0; i < node; ++i) {
        const std::vector<ir::BufferId> written = ir::writes(all[i]);
        if (std::find(written.begin(), written.end(), read) != written.end() && done.insert(i).second) add(i);
      }
    result.push_back(node);
  };
  for (const ir::NodeId node : group.nodes()) add(node);
  return result;
}

bool writes_disjoint(const ir::Graph& graph, const ir::Node& a, const ir::Node& b, ir::BufferId buffer) {
  if (!is_loop_nest(a) || !is_loop_nest(b)) return false;
  const ir::Ranges ranges_a = graph.ranges(&a), ranges_b = graph.ranges(&b);
  for (const ir::Store& x : a.stores)
    for (const ir::Store& y : b.stores) {
      if (x.buffer != buffer || y.buffer != buffer) continue;
      bool apart = false;
      for (size_t d = 0; d < x.index.size() && !apart; ++d) {
        const ir::Range p = ranges_a.of(x.index[d]), q = ranges_b.of(y.index[d]);
        apart = p.high < q.low || q.high < p.low;
      }
      if (!apart) return false;
    }
  return true;
}

Dependences node_dependences(const Schedule& schedule) {
  const ir::Graph& graph = schedule.graph;
  const int count = static_cast<int>(graph.nodes.size());
  Dependences result;
  result.before.resize(count);
  result.after.resize(count);
  std::vector<std::vector<int>> writers(graph.buffers.size()), readers(graph.buffers.size());
  int last_call = ir::kNone;
  std::map<int, int> node_of_call;
  for (int i = 0; i < count; ++i) {
    const ir::Node& node = graph.nodes[i];
    const std::vector<ir::BufferId> read = buffers_read(schedule, i);
    for (const ir::BufferId buffer : read)
      for (const int writer : writers[buffer]) result.add(writer, i);
    for (const ir::BufferId buffer : ir::writes(node)) {
      for (const int reader : readers[buffer]) result.add(reader, i);
      for (const int writer : writers[buffer])
        if (!writes_disjoint(graph, graph.nodes[writer], node, buffer)) result.add(writer, i);
      writers[buffer].push_back(i);
    }
    for (const ir::BufferId buffer : read) readers[buffer].push_back(i);
    if (node.kind != ir::NodeKind::kCall) continue;
    if (node.waits_for != ir::kNone) {
      result.add(node_of_call.at(node.waits_for), i);
      continue;
    }
    // Eager ops may have effects of their own, so they keep their order.
    if (last_call != ir::kNone) result.add(last_call, i);
    last_call = i;
    node_of_call[node.call] = i;
  }
  return result;
}

Dependences group_dependences(const Schedule& schedule) {
  const Dependences nodes = node_dependences(schedule);
  std::vector<int> group_of(schedule.graph.nodes.size(), ir::kNone);
  for (size_t g = 0; g < schedule.groups.size(); ++g)
    for (const ir::NodeId node : schedule.groups[g].nodes()) group_of[node] = static_cast<int>(g);
  Dependences result;
  result.before.resize(schedule.groups.size());
  result.after.resize(schedule.groups.size());
  for (size_t i = 0; i < nodes.after.size(); ++i)
    for (const int next : nodes.after[i])
      if (group_of[i] != ir::kNone && group_of[next] != ir::kNone) result.add(group_of[i], group_of[next]);
  return result;
}

std::vector<std::set<ir::NodeId>> waits_before(const Schedule& schedule, const Dependences& nodes) {
  const ir::Graph& graph = schedule.graph;
  const auto waits = [](const ir::Node& node) { return node.waits_for != ir::kNone; };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), waits)) return {};
  std::vector<std::set<ir::NodeId>> result(graph.nodes.size());
  for (ir::NodeId i = 0; i < static_cast<ir::NodeId>(graph.nodes.size()); ++i)
    for (const int before : nodes.before[i]) {  // Earlier in program order, so result[before] is complete.
      result[i].insert(result[before].begin(), result[before].end());
      if (waits(graph.nodes[before])) result[i].insert(before);
    }
  return result;
}

namespace {

/// True if what the node computes, or where it stores it, depends on a size symbol: its value may differ in the next call.
bool uses_sizes(const ir::Node& node) {
  const auto any = [](const Coords& list) {
    return std::any_of(list.begin(), list.end(), [](const ir::IndexExpr& e) { return e.uses(ir::SymbolKind::kSize); });
  };
  return any(node.sizes) || any(node.reduce_sizes) ||
         std::any_of(node.body.ops.begin(), node.body.ops.end(), [&](const ir::Op& op) { return any(op.index); }) ||
         std::any_of(node.stores.begin(), node.stores.end(), [&](const ir::Store& store) { return any(store.index); }) ||
         std::any_of(node.operands.begin(), node.operands.end(),
                     [&](const ir::View& view) { return any(view.sizes) || any(view.coords); });
}

}  // namespace

Accesses::Accesses(const Schedule& schedule) : writers(schedule.graph.buffers.size()), readers(schedule.graph.buffers.size()) {
  for (ir::NodeId i = 0; i < static_cast<ir::NodeId>(schedule.graph.nodes.size()); ++i) {
    for (const ir::BufferId b : buffers_read(schedule, i)) readers[b].push_back(i);
    for (const ir::BufferId b : ir::writes(schedule.graph.nodes[i])) writers[b].push_back(i);
  }
}

std::vector<bool> nodes_of_parameters(const Schedule& schedule) {
  if (!schedule.keeps_parameters) return {};
  const ir::Graph& graph = schedule.graph;
  const std::vector<bool> visible = visible_buffers(graph);
  std::vector<bool> result(graph.nodes.size());
  std::vector<std::vector<ir::NodeId>> writers(graph.buffers.size());
  for (ir::NodeId i = 0; i < static_cast<ir::NodeId>(graph.nodes.size()); ++i)
    for (const ir::BufferId buffer : ir::writes(graph.nodes[i])) {
      writers[buffer].push_back(i);
      const ir::Node& node = graph.nodes[i];
      result[i] = node.kind != ir::NodeKind::kCall && !unpacks(graph, node) && !uses_sizes(node);
    }
  // True if the results of node i depend only on parameters, assuming this of the nodes in `result`.
  const auto stays = [&](ir::NodeId i) {
    const std::vector<ir::BufferId> read = buffers_read(schedule, i), written = ir::writes(graph.nodes[i]);
    const auto is_const = [](const ir::IndexExpr& size) { return size.is_const(); };
    const auto kept = [&](ir::BufferId b) {
      const ir::Buffer& buffer = graph.buffers[b];
      if (buffer.role == ir::BufferRole::kInput) return buffer.is_parameter && writers[b].empty();
      return std::all_of(writers[b].begin(), writers[b].end(), [&](ir::NodeId w) { return result[w]; });
    };
    return !read.empty() && std::all_of(read.begin(), read.end(), kept) &&
           std::all_of(written.begin(), written.end(), [&](ir::BufferId b) {
             const ir::Shape& sizes = graph.buffers[b].sizes;
             return !visible[b] && kept(b) && std::all_of(sizes.begin(), sizes.end(), is_const);
           });
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (ir::NodeId i = 0; i < static_cast<ir::NodeId>(graph.nodes.size()); ++i)
      if (result[i] && !stays(i)) {
        result[i] = false;
        changed = true;
      }
  }
  return result;
}

bool reaches(const Dependences& dependences, int from, int to, bool direct) {
  std::vector<bool> seen(dependences.after.size(), false);
  std::vector<int> stack;
  for (const int next : dependences.after[from])
    if (next != to) {
      if (!seen[next]) stack.push_back(next);
      seen[next] = true;
    } else if (direct) {
      return true;
    }
  while (!stack.empty()) {
    const int at = stack.back();
    stack.pop_back();
    for (const int next : dependences.after[at]) {
      if (next == to) return true;
      if (seen[next]) continue;
      seen[next] = true;
      stack.push_back(next);
    }
  }
  return false;
}

}  // namespace ocl::schedule
