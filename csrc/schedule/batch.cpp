// csrc/schedule/batch.cpp: pass: independent small groups become one launch.
#include "csrc/schedule/batch.h"

#include <algorithm>
#include <set>

#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"

namespace ocl::schedule {

namespace {

constexpr double kMaxElements = 32 << 20;  // most elements of a member; with more, the time of a launch does not matter
constexpr double kMaxSteps = 256;          // most steps of a lane of a member
constexpr double kLeastHeld = 64 << 20;    // bytes of partial results that may always wait for company
constexpr int kMaxBuffers = 100;           // most buffers of a batch, to limit registers and kernel text
constexpr int kIntBytes = 512;             // left for integer arguments

class Batcher {
 public:
  Batcher(Schedule& schedule, const Caps& caps)
      : schedule_(schedule),
        max_buffers_(std::min(kMaxBuffers, (caps.max_kernel_arg_bytes - kIntBytes) / 16)),
        edges_(group_dependences(schedule)),
        visible_(visible_buffers(schedule.graph)),
        parameters_(nodes_of_parameters(schedule)),
        shared_(shared_buffers(schedule)),
        home_(schedule.groups.size(), -1) {
    for (size_t b = 0; b < schedule.graph.buffers.size(); ++b)
      max_held_bytes_ = std::max(max_held_bytes_, typical_bytes(schedule.graph, static_cast<ir::BufferId>(b)));
  }

  void run() {
    // The graph's inputs decide how much of a group is known early: a large activation must not wait for company.
    for (int g = 0; g < static_cast<int>(schedule_.groups.size()); ++g) {
      if (!candidate(schedule_.groups[g])) continue;
      const std::set<ir::BufferId> own = buffers(schedule_.groups[g]);
      const double held = held_bytes(schedule_.groups[g]);
      for (size_t b = 0; b < batches_.size() && home_[g] < 0; ++b) {
        std::set<ir::BufferId> all = batches_[b].buffers;
        all.insert(own.begin(), own.end());
        if (static_cast<int>(all.size()) > max_buffers_ || batches_[b].held + held > max_held_bytes_) continue;
        if (of_parameters(g) != of_parameters(batches_[b].members[0])) continue;
        if (!independent(static_cast<int>(b), g)) continue;
        batches_[b].members.push_back(g);
        batches_[b].buffers = std::move(all);
        batches_[b].held += held;
        home_[g] = static_cast<int>(b);
      }
      if (home_[g] >= 0 || static_cast<int>(own.size()) > max_buffers_) continue;
      home_[g] = static_cast<int>(batches_.size());
      batches_.push_back({{g}, own, held});
    }
    rebuild();
  }

 private:
  struct Batch {
    std::vector<int> members;  // groups
    std::set<ir::BufferId> buffers;
    double held = 0;  // bytes that wait for the batch
  };

  /// Whether the group's results are kept between calls.
  bool of_parameters(int g) const {
    const std::vector<ir::NodeId> nodes = schedule_.groups[g].nodes();
    return !parameters_.empty() && std::all_of(nodes.begin(), nodes.end(), [&](ir::NodeId n) { return parameters_[n]; });
  }

  bool candidate(const Group& group) const {
    if (group.kind != GroupKind::kLoops) return false;
    const double elements = typical_product(schedule_.graph, group.sizes);
    if (group.strategy == LoopStrategy::kPointwise) return elements <= limit(group);
    const double steps = typical_product(schedule_.graph, group.reduce_sizes);
    return group.strategy == LoopStrategy::kSequential && steps <= kMaxSteps &&
           elements * steps <= (serves_caller_alone(group) ? kMaxElements : limit(group)) &&
           held_bytes(group) <= max_held_bytes_;
  }

  /// Whether everything that the group stores is the caller's, so that no other group waits for it (gradients).
  bool serves_caller_alone(const Group& group) const {
    for (const ir::NodeId node : group.nodes())
      for (const ir::BufferId b : ir::writes(schedule_.graph.nodes[node]))
        if (shared_[b] && !visible_[b]) return false;
    return true;
  }

  /// Bytes of intermediate results that a reduction keeps alive until it runs.
  double held_bytes(const Group& group) const {
    if (group.strategy == LoopStrategy::kPointwise) return 0;
    double bytes = 0;
    for (const ir::BufferId b : buffers(group))
      if (!visible_[b]) bytes += typical_bytes(schedule_.graph, b);
    return bytes;
  }

  /// Groups that work on the caller's tensors alone (packing, optimizers) may be large; others would wait for each other.
  double limit(const Group& group) const {
    for (const ir::NodeId node : group.nodes())
      for (const Access& access : accesses(schedule_.graph.nodes[node]))
        if (!access.store && schedule_.graph.buffers[access.buffer].role != ir::BufferRole::kInput) return 65536;
    return kMaxElements;
  }

  /// What becomes an argument: not the values that stay in registers of the group.
  std::set<ir::BufferId> buffers(const Group& group) const {
    std::set<ir::BufferId> result;
    for (const ir::NodeId node : group.nodes())
      for (const Access& access : accesses(schedule_.graph.nodes[node]))
        if (shared_[access.buffer]) result.insert(access.buffer);
    return result;
  }

  /// Buffers that the caller or several groups see.
  static std::vector<bool> shared_buffers(const Schedule& schedule) {
    std::vector<bool> shared = visible_buffers(schedule.graph);
    std::vector<int> owner(shared.size(), -1);
    for (size_t g = 0; g < schedule.groups.size(); ++g)
      for (const ir::NodeId node : schedule.groups[g].nodes())
        for (const auto& list : {buffers_read(schedule, node), ir::writes(schedule.graph.nodes[node])})
          for (const ir::BufferId buffer : list) {
            if (owner[buffer] >= 0 && owner[buffer] != static_cast<int>(g)) shared[buffer] = true;
            owner[buffer] = static_cast<int>(g);
          }
    return shared;
  }

  /// Whether no path leads from a member to g or back, through any group or any batch so far.
  bool independent(int batch, int g) const {
    const auto reach = [&](bool forward, std::vector<int> stack, const std::set<int>& targets) {
      std::vector<bool> seen(edges_.after.size(), false);
      std::set<int> batches_seen;
      const auto push = [&](int next) {
        if (!seen[next]) stack.push_back(next);
        seen[next] = true;
      };
      while (!stack.empty()) {
        const int at = stack.back();
        stack.pop_back();
        for (const int next : forward ? edges_.after[at] : edges_.before[at]) {
          if (targets.count(next)) return true;
          push(next);
          if (home_[next] >= 0 && batches_seen.insert(home_[next]).second)  // who joined a batch runs with all of it
            for (const int member : batches_[home_[next]].members) {
              if (targets.count(member)) return true;
              push(member);
            }
        }
      }
      return false;
    };
    const std::set<int> members(batches_[batch].members.begin(), batches_[batch].members.end());
    return !reach(true, {g}, members) && !reach(false, {g}, members);
  }

  void rebuild() {
    std::vector<Group> groups;
    for (size_t g = 0; g < home_.size(); ++g) {
      const int b = home_[g];
      if (b < 0 || batches_[b].members.size() == 1) {
        groups.push_back(std::move(schedule_.groups[g]));
        continue;
      }
      if (batches_[b].members.back() != static_cast<int>(g)) continue;  // linearize finds the place
      Group group;
      group.kind = GroupKind::kBatch;
      group.reasons.push_back("batch: " + std::to_string(batches_[b].members.size()) + " independent groups in one launch");
      for (const int member : batches_[b].members) group.members.push_back(std::move(schedule_.groups[member]));
      groups.push_back(std::move(group));
    }
    schedule_.groups = std::move(groups);
  }

  Schedule& schedule_;
  const int max_buffers_;
  const Dependences edges_;
  const std::vector<bool> visible_, parameters_, shared_;
  double max_held_bytes_ = kLeastHeld;  // no more than one large activation takes
  std::vector<Batch> batches_;
  std::vector<int> home_;  // batch of each group
};

}  // namespace

void batch(Schedule& schedule, const Caps& caps) { Batcher(schedule, caps).run(); }

}  // namespace ocl::schedule
