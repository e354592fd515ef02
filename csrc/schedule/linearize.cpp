// csrc/schedule/linearize.cpp: pass: orders the groups. It takes the program order, unless a greedy order by freed
// bytes needs at least 5% less memory at its peak.
#include "csrc/schedule/linearize.h"

#include <algorithm>
#include <set>

#include "csrc/schedule/dependence.h"
#include "csrc/schedule/loops.h"

namespace ocl::schedule {

using ir::BufferId;

namespace {

class Linearizer {
 public:
  explicit Linearizer(const Schedule& schedule) : edges_(group_dependences(schedule)) {
    const ir::Graph& graph = schedule.graph;
    const std::vector<bool> visible = visible_buffers(graph);
    touched_.resize(schedule.groups.size());
    touches_.assign(graph.buffers.size(), 0);
    bytes_.assign(graph.buffers.size(), 0);
    first_node_.resize(schedule.groups.size());
    for (size_t g = 0; g < schedule.groups.size(); ++g) {
      std::set<BufferId> set;
      const std::vector<ir::NodeId> nodes = schedule.groups[g].nodes();
      first_node_[g] = nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end());
      for (const ir::NodeId node : nodes) {
        for (const BufferId b : buffers_read(schedule, node)) set.insert(b);
        for (const BufferId b : ir::writes(graph.nodes[node])) set.insert(b);
      }
      for (const BufferId b : set)
        if (!visible[b]) touched_[g].push_back(b);
      for (const BufferId b : touched_[g]) ++touches_[b];
    }
    for (size_t b = 0; b < bytes_.size(); ++b) bytes_[b] = touches_[b] > 1 ? typical_bytes(graph, static_cast<BufferId>(b)) : 0;
  }

  /// Returns a topological order, and writes its highest memory use to `peak`. greedy: true to take, of the ready
  /// groups, the one that frees most and allocates least; false to take program order.
  std::vector<int> order(bool greedy, double& peak) const {
    const int count = static_cast<int>(touched_.size());
    std::vector<int> waiting(count), left = touches_, result;
    std::vector<bool> alive(bytes_.size(), false);
    std::set<std::pair<int, int>> ready;  // Program position, group.
    for (int g = 0; g < count; ++g) {
      waiting[g] = static_cast<int>(edges_.before[g].size());
      if (waiting[g] == 0) ready.insert({first_node_[g], g});
    }
    double now = 0;
    peak = 0;
    while (!ready.empty()) {
      auto best = ready.begin();
      double best_growth = 0;
      for (auto it = ready.begin(); greedy && it != ready.end(); ++it) {
        double growth = 0;
        for (const BufferId b : touched_[it->second]) growth += (alive[b] ? 0 : bytes_[b]) - (left[b] == 1 ? bytes_[b] : 0);
        if (it != ready.begin() && growth >= best_growth) continue;
        best = it;
        best_growth = growth;
      }
      const int g = best->second;
      ready.erase(best);
      result.push_back(g);
      for (const BufferId b : touched_[g]) {
        if (!alive[b]) now += bytes_[b];
        alive[b] = true;
      }
      peak = std::max(peak, now);
      for (const BufferId b : touched_[g])
        if (--left[b] == 0) now -= bytes_[b];
      for (const int next : edges_.after[g])
        if (--waiting[next] == 0) ready.insert({first_node_[next], next});
    }
    return result;
  }

 private:
  const Dependences edges_;
  std::vector<std::vector<BufferId>> touched_;
  std::vector<int> touches_, first_node_;
  std::vector<double> bytes_;
};

}  // namespace

void linearize(Schedule& schedule, const Caps&) {
  const Linearizer linearizer(schedule);
  double program_peak = 0, greedy_peak = 0;
  std::vector<int> order = linearizer.order(false, program_peak);
  const std::vector<int> greedy = linearizer.order(true, greedy_peak);
  if (greedy_peak < 0.95 * program_peak) order = greedy;
  std::vector<Group> groups;
  for (const int g : order) groups.push_back(std::move(schedule.groups[g]));
  schedule.groups = std::move(groups);
}

}  // namespace ocl::schedule
