// csrc/schedule/batch.cpp: pass: combines independent small groups into one launch.
#include "csrc/schedule/batch.h"

#include <algorithm>
#include <set>

#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"
#include "csrc/schedule/index_width.h"

namespace ocl::schedule {

namespace {

// Most elements of a member. With more, the time of a launch does not matter.
constexpr double kMaxElements = 32 << 20;
// Most elements of a member that runs long before its results are read. More would need memory from then on.
constexpr double kMaxHeldElements = 4 << 20;
constexpr double kMaxSteps = 256;        // Most reduction steps of a lane.
constexpr double kMostHeld = 32 << 20;   // Bytes of intermediate results that a batch may keep alive.
constexpr double kFewElements = 65536;   // A group of so few elements takes little longer than a launch.
constexpr double kTinyElements = 16384;  // With so few, a launch takes longer than several passes over the rows.
constexpr size_t kMaxBuffers = 256;      // Most buffers of a batch, to limit kernel text.
constexpr int kMaxAccumulators = 4;      // Most accumulators of a member that combines them in local memory.
// Bytes of a buffer's arguments, and the most integer arguments that a loop nest of one shape takes.
constexpr size_t kBufferBytes = 16, kShapeInts = 4;

/// What decides how many bytes of arguments a batch takes.
struct Arguments {
  std::set<ir::BufferId> buffers;
  std::vector<ir::Shape> shapes;  // Without repetition: nests of one shape share their integers.
  size_t members = 0;             // The end of each member is an argument.
  bool wide = false;              // Integers have 64 bits.

  void add(const Arguments& other) {
    buffers.insert(other.buffers.begin(), other.buffers.end());
    for (const ir::Shape& shape : other.shapes)
      if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
    members += other.members;
    wide |= other.wide;
  }
};

class Batcher {
 public:
  Batcher(Schedule& schedule, const Caps& caps)
      : schedule_(schedule),
        max_argument_bytes_(static_cast<size_t>(caps.max_kernel_arg_bytes)),
        is_cpu_(caps.is_cpu),
        edges_(group_dependences(schedule)),
        visible_(visible_buffers(schedule.graph)),
        parameters_(nodes_of_parameters(schedule)),
        shared_(shared_buffers(schedule)),
        waits_(waits_before(schedule, node_dependences(schedule))),
        batch_of_(schedule.groups.size(), -1) {}

  void run() {
    // A group joins the first batch that it fits into. Large intermediate results must not stay alive only because
    // their reader waits for the other members, or their writer does not, so their bytes are limited.
    for (int g = 0; g < static_cast<int>(schedule_.groups.size()); ++g) {
      if (!candidate(g)) continue;
      const Group& group = schedule_.groups[g];
      const Arguments own{buffers(group), {group.sizes}, 1, !has_narrow_indices(schedule_, group)};
      const double held = held_bytes(group);
      for (size_t b = 0; b < batches_.size() && batch_of_[g] < 0; ++b) {
        if (batches_[b].is_full) continue;
        batches_[b].is_full = batches_[b].held + held > kMostHeld;
        if (batches_[b].is_full) continue;
        Arguments all = batches_[b].arguments;
        all.add(own);
        if (!fits(all)) continue;
        if (of_parameters(g) != of_parameters(batches_[b].members[0])) continue;
        // Members wait for the same collectives. So a group that waits for none can still run during a collective.
        if (waits_of(g) != waits_of(batches_[b].members[0])) continue;
        if (!independent(static_cast<int>(b), g)) continue;
        if (!std::ranges::all_of(batches_[b].members, [&](int member) { return wait_alike(member, g); })) continue;
        batches_[b].members.push_back(g);
        batches_[b].arguments = std::move(all);
        batches_[b].held += held;
        batch_of_[g] = static_cast<int>(b);
      }
      if (batch_of_[g] >= 0 || !fits(own)) continue;
      batch_of_[g] = static_cast<int>(batches_.size());
      batches_.push_back({{g}, own, held});
    }
    rebuild();
  }

 private:
  struct Batch {
    std::vector<int> members;  // Indices of groups.
    Arguments arguments;
    double held = 0;       // Bytes of intermediate results that are kept alive until the batch runs, or since.
    bool is_full = false;  // A group was too large for it. Later groups would only let its members wait for longer.
  };

  /// True if the group's results depend only on parameters and are kept between calls.
  bool of_parameters(int g) const {
    const std::vector<ir::NodeId> nodes = schedule_.groups[g].nodes();
    return !parameters_.empty() && std::all_of(nodes.begin(), nodes.end(), [&](ir::NodeId n) { return parameters_[n]; });
  }

  /// Returns the calls with `waits_for` that must run before the group.
  std::set<ir::NodeId> waits_of(int g) const {
    std::set<ir::NodeId> result;
    if (waits_.empty()) return result;
    for (const ir::NodeId node : schedule_.groups[g].nodes()) result.insert(waits_[node].begin(), waits_[node].end());
    return result;
  }

  /// True if the arguments of a batch are few enough for the device.
  bool fits(const Arguments& arguments) const {
    const size_t ints = arguments.members + kShapeInts * arguments.shapes.size() + static_cast<size_t>(schedule_.graph.symbols);
    return arguments.buffers.size() <= kMaxBuffers &&
           kBufferBytes * arguments.buffers.size() + (arguments.wide ? 8 : 4) * ints <= max_argument_bytes_;
  }

  bool candidate(int g) const {
    const Group& group = schedule_.groups[g];
    if (group.kind != GroupKind::kLoops || is_alone(schedule_, group.nodes()[0])) return false;
    const double elements = typical_product(schedule_.graph, group.sizes);
    if (group.strategy == LoopStrategy::kPointwise) return elements <= limit(g);
    const double steps = typical_product(schedule_.graph, group.reduce_sizes);
    if (group.strategy == LoopStrategy::kRow)
      return reads_rows_once(group, !is_cpu_ && elements * steps <= kTinyElements) &&
             elements * steps <= (is_cpu_ ? row_limit(g) : kMaxElements);
    return group.strategy == LoopStrategy::kSequential && steps <= kMaxSteps &&
           elements * steps <= (serves_caller_alone(group) ? kMaxElements : limit(g)) && held_bytes(group) <= kMostHeld;
  }

  /// True if the group reads its rows in one pass: it would gain nothing from work-groups that keep a row in registers. `tiny`:
  /// nor would it gain as much as a launch takes with more passes.
  bool reads_rows_once(const Group& group, bool tiny) const {
    int accumulators = 0, passes = 0;
    for (const Phase& phase : group.phases) passes += phase.inner;
    for (const ir::NodeId id : group.nodes()) {
      const ir::Node& node = schedule_.graph.nodes[id];
      if (node.kind == ir::NodeKind::kScan) return false;
      if (node.kind == ir::NodeKind::kReduce) accumulators += ir::facts(node.reduction).accumulators;
    }
    return (passes == 1 || tiny) && accumulators <= kMaxAccumulators;
  }

  /// Like limit(), for rows: their results are few, so that they need little memory.
  double row_limit(int g) const { return runs_early(g) ? kMaxElements : kFewElements; }

  /// True if the group has rows that take longer than a launch. On a GPU it may share a launch if no member waits for the
  /// other, as products that read one row.
  bool is_long(int g) const {
    const Group& group = schedule_.groups[g];
    return group.strategy == LoopStrategy::kRow &&
           typical_product(schedule_.graph, group.sizes) * typical_product(schedule_.graph, group.reduce_sizes) > row_limit(g);
  }

  bool wait_alike(int a, int b) const {
    if (!is_long(a) && !is_long(b)) return true;
    const auto waits = [&](int first, int second) {
      return std::ranges::all_of(edges_.before[first], [&](int g) { return reaches(edges_, g, second, true); });
    };
    return waits(a, b) && waits(b, a);
  }

  /// True if all results of the group are outputs, such as gradients. No other group then waits for them.
  bool serves_caller_alone(const Group& group) const {
    for (const ir::NodeId node : group.nodes())
      for (const ir::BufferId b : ir::writes(schedule_.graph.nodes[node]))
        if (shared_[b] && !visible_[b]) return false;
    return true;
  }

  /// Returns the bytes of intermediate results that the group keeps alive for longer in a batch. A reduction waits for the
  /// other members with what it reads. A pointwise group may run long before its results are read: it recomputes them, or
  /// packs.
  double held_bytes(const Group& group) const {
    std::set<ir::BufferId> held;
    if (group.strategy != LoopStrategy::kPointwise) held = buffers(group);
    for (const ir::NodeId node : group.nodes())
      if (group.strategy == LoopStrategy::kPointwise && (parameters_.empty() || !parameters_[node]))
        for (const ir::BufferId b : ir::writes(schedule_.graph.nodes[node]))
          if (shared_[b]) held.insert(b);
    double bytes = 0;
    for (const ir::BufferId b : held)
      if (!visible_[b]) bytes += typical_bytes(schedule_.graph, b);
    return bytes;
  }

  /// Returns the largest number of elements of a member. A group that can run early (packing, optimizers) may be large. Large
  /// other groups would make the members wait for each other.
  double limit(int g) const {
    if (!runs_early(g)) return kFewElements;
    return held_bytes(schedule_.groups[g]) > 0 ? kMaxHeldElements : kMaxElements;
  }

  /// True if the group reads only inputs of the graph, and results of small groups that read only inputs, such as the factors
  /// of Adam that depend on the step.
  bool runs_early(int g) const {
    if (reads_inputs_alone(g)) return true;
    return std::all_of(edges_.before[g].begin(), edges_.before[g].end(), [&](int before) {
      const Group& group = schedule_.groups[before];
      return group.kind == GroupKind::kLoops && typical_product(schedule_.graph, group.sizes) <= kFewElements &&
             reads_inputs_alone(before);
    });
  }

  bool reads_inputs_alone(int g) const {
    std::set<ir::BufferId> own;
    for (const ir::NodeId node : schedule_.groups[g].nodes())
      for (const ir::BufferId b : ir::writes(schedule_.graph.nodes[node])) own.insert(b);
    for (const ir::BufferId b : buffers(schedule_.groups[g]))
      if (schedule_.graph.buffers[b].role != ir::BufferRole::kInput && !own.count(b)) return false;
    return true;
  }

  /// Returns the buffers that become kernel arguments. Values that stay in registers of the group are not among them.
  std::set<ir::BufferId> buffers(const Group& group) const {
    std::set<ir::BufferId> result;
    for (const ir::NodeId node : group.nodes())
      for (const Access& access : accesses(schedule_.graph.nodes[node]))
        if (shared_[access.buffer]) result.insert(access.buffer);
    return result;
  }

  /// Returns, for each buffer, whether the caller or several groups access it.
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

  /// True if no path leads from a member to g or back, through any group or any batch that exists so far.
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
          // A group in a batch runs together with all other members.
          if (batch_of_[next] >= 0 && batches_seen.insert(batch_of_[next]).second)
            for (const int member : batches_[batch_of_[next]].members) {
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
    for (size_t g = 0; g < batch_of_.size(); ++g) {
      const int b = batch_of_[g];
      if (b < 0 || batches_[b].members.size() == 1) {
        groups.push_back(std::move(schedule_.groups[g]));
        continue;
      }
      // The batch takes the place of its last member. The pass linearize orders the groups later.
      if (batches_[b].members.back() != static_cast<int>(g)) continue;
      Group group;
      group.kind = GroupKind::kBatch;
      group.reasons.push_back("batch: " + std::to_string(batches_[b].members.size()) + " independent groups in one launch");
      for (const int member : batches_[b].members) group.members.push_back(std::move(schedule_.groups[member]));
      groups.push_back(std::move(group));
    }
    schedule_.groups = std::move(groups);
  }

  Schedule& schedule_;
  const size_t max_argument_bytes_;
  const bool is_cpu_;
  const Dependences edges_;
  const std::vector<bool> visible_, parameters_, shared_;
  const std::vector<std::set<ir::NodeId>> waits_;
  std::vector<Batch> batches_;
  std::vector<int> batch_of_;  // Index of each group's batch, or -1.
};

}  // namespace

void batch(Schedule& schedule, const Caps& caps) { Batcher(schedule, caps).run(); }

}  // namespace ocl::schedule
