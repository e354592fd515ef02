// csrc/schedule/linearize.cpp: pass: orders the groups. It takes the program order, or that order with recomputed values just
// before they are needed if this needs less memory, unless a greedy order by freed bytes needs at least 5% less memory at its
// peak. In every order, a call that starts a collective moves forward, and a call that waits for one moves back to the first
// group that needs its result. If there is memory for it, groups that do not need the result move forward too, so that they run
// while the collective runs.
#include "csrc/schedule/linearize.h"

#include <algorithm>
#include <climits>
#include <map>
#include <set>

#include "csrc/schedule/dependence.h"
#include "csrc/schedule/loops.h"

namespace ocl::schedule {

namespace {

// Limit in bytes for the results of collectives that start before their place in program order. Also the limit for how
// much groups that move forward may raise the peak.
constexpr double kMostInFlight = 64 << 20;

enum class Order : uint8_t {
  kProgram,
  kLate,         // The program order, but what needs more memory than it frees runs only when its result is needed.
  kOverlap,      // The program order, but what waits for a collective runs only when nothing else can.
  kLeastMemory,  // Of the groups that can run, the one that frees most and allocates least.
};

class Linearizer {
 public:
  explicit Linearizer(const Schedule& schedule) : edges_(group_dependences(schedule)) {
    const ir::Graph& graph = schedule.graph;
    const std::vector<bool> visible = visible_buffers(graph);
    touched_.resize(schedule.groups.size());
    touches_.assign(graph.buffers.size(), 0);
    bytes_.assign(graph.buffers.size(), 0);
    for (size_t g = 0; g < schedule.groups.size(); ++g) {
      std::set<BufferId> set;
      const std::vector<ir::NodeId> nodes = schedule.groups[g].nodes();
      for (const ir::NodeId node : nodes) {
        for (const BufferId b : buffers_read(schedule, node)) set.insert(b);
        for (const BufferId b : ir::writes(graph.nodes[node])) set.insert(b);
      }
      for (const BufferId b : set)
        if (!visible[b]) touched_[g].push_back(b);
      for (const BufferId b : touched_[g]) ++touches_[b];
      position_.push_back(nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end()));
    }
    place_collectives(schedule);
    for (size_t b = 0; b < bytes_.size(); ++b) bytes_[b] = touches_[b] > 1 ? typical_bytes(graph, static_cast<BufferId>(b)) : 0;
    place_before_readers(schedule, visible);
  }

  bool has_waits() const { return std::find(waits_.begin(), waits_.end(), true) != waits_.end(); }

  /// Returns a topological order, and writes its highest memory use to `peak`.
  std::vector<int> order(Order rule, double& peak) const {
    const int count = static_cast<int>(touched_.size());
    const std::vector<int>& positions = rule == Order::kLate ? late_position_ : position_;
    std::vector<int> waiting(count), left = touches_, result;
    std::vector<bool> alive(bytes_.size(), false);
    Ready ready;
    for (int g = 0; g < count; ++g) {
      waiting[g] = static_cast<int>(edges_.before[g].size());
      if (waiting[g] == 0) ready.insert({positions[g], g});
    }
    double now = 0, in_flight = 0;
    peak = 0;
    const auto growth = [&](int g) {
      double bytes = 0;
      for (const BufferId b : touched_[g]) bytes += (alive[b] ? 0 : bytes_[b]) - (left[b] == 1 ? bytes_[b] : 0);
      return bytes;
    };
    while (!ready.empty()) {
      auto best = startable(ready, in_flight);
      if (best == ready.end()) best = choose(ready, rule, growth);
      const int g = best->second;
      ready.erase(best);
      result.push_back(g);
      in_flight += in_flight_[g];
      for (const BufferId b : touched_[g]) {
        if (!alive[b]) now += bytes_[b];
        alive[b] = true;
      }
      peak = std::max(peak, now);
      for (const BufferId b : touched_[g])
        if (--left[b] == 0) now -= bytes_[b];
      for (const int next : edges_.after[g])
        if (--waiting[next] == 0) ready.insert({positions[next], next});
    }
    return result;
  }

 private:
  using Ready = std::set<std::pair<int, int>>;  // Position, group.

  /// Finds the calls that start collectives or wait for them.
  void place_collectives(const Schedule& schedule) {
    const int count = static_cast<int>(schedule.groups.size());
    starts_.assign(count, false);
    waits_.assign(count, false);
    in_flight_.assign(count, 0);
    std::map<int, int> group_of_call;
    for (int g = 0; g < count; ++g)
      if (schedule.groups[g].kind == GroupKind::kCall) group_of_call[schedule.graph.nodes[schedule.groups[g].call].call] = g;
    for (int g = 0; g < count; ++g) {
      if (schedule.groups[g].kind != GroupKind::kCall) continue;
      const ir::Node& node = schedule.graph.nodes[schedule.groups[g].call];
      if (node.waits_for == ir::kNone) continue;
      const int start = group_of_call.at(node.waits_for);
      starts_[start] = waits_[g] = true;
      for (const BufferId b : node.outputs) {
        in_flight_[start] += typical_bytes(schedule.graph, b);
        in_flight_[g] -= typical_bytes(schedule.graph, b);
      }
      position_[g] = INT_MAX;  // Only the caller needs the result, unless a group reads it.
      for (const int reader : edges_.after[g]) position_[g] = std::min(position_[g], position_[reader]);
    }
  }

  /// Places each group before those that need its results: a batch may have a member from near the end of the program. For
  /// kLate, groups that write more than they read, such as recomputed activations, move back to the first that needs their
  /// result.
  void place_before_readers(const Schedule& schedule, const std::vector<bool>& visible) {
    const int count = static_cast<int>(schedule.groups.size());
    std::vector<int> sorted, waiting(count);  // sorted: each group after those that it depends on.
    for (int g = 0; g < count; ++g) {
      waiting[g] = static_cast<int>(edges_.before[g].size());
      if (waiting[g] == 0) sorted.push_back(g);
    }
    for (size_t at = 0; at < sorted.size(); ++at)
      for (const int next : edges_.after[sorted[at]])
        if (--waiting[next] == 0) sorted.push_back(next);
    late_position_ = position_;
    for (auto g = sorted.rbegin(); g != sorted.rend(); ++g) {
      double growth = 0;
      std::set<BufferId> written;
      for (const ir::NodeId node : schedule.groups[*g].nodes())
        for (const BufferId b : ir::writes(schedule.graph.nodes[node])) written.insert(b);
      for (const BufferId b : touched_[*g]) growth += written.count(b) ? bytes_[b] : -bytes_[b];
      const bool is_seen = std::ranges::any_of(written, [&](BufferId b) { return visible[b]; });
      const bool is_late = growth > 0 && !is_seen && schedule.groups[*g].kind != GroupKind::kCall;
      if (is_late) late_position_[*g] = INT_MAX;
      for (const int reader : edges_.after[*g]) {
        position_[*g] = std::min(position_[*g], position_[reader]);
        late_position_[*g] = std::min(late_position_[*g], late_position_[reader]);
      }
    }
  }

  /// Returns a ready group that starts a collective for whose result there is room.
  Ready::iterator startable(const Ready& ready, double in_flight) const {
    return std::find_if(ready.begin(), ready.end(), [&](const auto& entry) {
      return starts_[entry.second] && in_flight + in_flight_[entry.second] <= kMostInFlight;
    });
  }

  /// Returns the next group. In the orders kOverlap and kLeastMemory, it is a wait for a collective only if nothing else is
  /// ready.
  template <class Growth>
  Ready::iterator choose(const Ready& ready, Order rule, const Growth& growth) const {
    if (rule == Order::kProgram || rule == Order::kLate) return ready.begin();
    auto best = ready.end();
    double best_growth = 0;
    for (auto it = ready.begin(); it != ready.end(); ++it) {
      if (waits_[it->second]) continue;
      if (rule == Order::kOverlap) return it;
      const double bytes = growth(it->second);
      if (best != ready.end() && bytes >= best_growth) continue;
      best = it;
      best_growth = bytes;
    }
    return best == ready.end() ? ready.begin() : best;
  }

  const Dependences edges_;
  std::vector<std::vector<BufferId>> touched_;
  std::vector<int> touches_, position_, late_position_;
  std::vector<bool> starts_, waits_;  // For each group, whether it starts a collective or waits for one.
  std::vector<double> in_flight_;     // By how many bytes a group changes the results of collectives that are under way.
  std::vector<double> bytes_;
};

}  // namespace

void linearize(Schedule& schedule, const Caps&) {
  const Linearizer linearizer(schedule);
  double program_peak = 0, late_peak = 0, overlap_peak = 0, least_peak = 0;
  std::vector<int> order = linearizer.order(Order::kProgram, program_peak);
  std::vector<int> late = linearizer.order(Order::kLate, late_peak);
  if (late_peak < program_peak) {
    order = std::move(late);
    program_peak = late_peak;
  }
  if (linearizer.has_waits()) {
    std::vector<int> overlapping = linearizer.order(Order::kOverlap, overlap_peak);
    if (overlap_peak <= program_peak + kMostInFlight) order = std::move(overlapping);
  }
  const std::vector<int> least = linearizer.order(Order::kLeastMemory, least_peak);
  if (least_peak < 0.95 * program_peak) order = least;
  std::vector<Group> groups;
  for (const int g : order) groups.push_back(std::move(schedule.groups[g]));
  schedule.groups = std::move(groups);
}

}  // namespace ocl::schedule
