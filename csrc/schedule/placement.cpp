// csrc/schedule/placement.cpp: pass: decides where each buffer lives.
#include "csrc/schedule/placement.h"

#include <algorithm>
#include <set>

#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"

namespace ocl::schedule {

using ir::Buffer;

namespace {

/// The first and the last group, in launch order, that access a buffer.
struct GroupSpan {
  int first = -1, last = -1;
  bool memory = false;  // Some group needs it in memory, not only in registers.
  bool written = false;
};

/// Returns the number of elements from the first to the last element of a buffer: the size to allocate.
IndexExpr extent_elements(const Graph& graph, const Buffer& buffer) {
  IndexExpr last = 1, count = 1;
  bool empty = false;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) {
    last = last + (buffer.sizes[d] - 1) * (*buffer.strides)[d];
    count = count * buffer.sizes[d];
    empty |= buffer.sizes[d].is_const(0);
  }
  if (empty) return 0;
  const IndexExpr dense = simplify(count, graph.ranges()), strided = simplify(last, graph.ranges());
  return dense == strided ? dense : simplify(max(dense, strided), graph.ranges());
}

class Placer {
 public:
  explicit Placer(Schedule& schedule) : schedule_(schedule), graph_(schedule.graph), spans_(schedule.graph.buffers.size()) {
    for (int g = 0; g < static_cast<int>(schedule.groups.size()); ++g) visit(schedule.groups[g], g);
  }

  void place() {
    schedule_.placements.assign(graph_.buffers.size(), {});
    schedule_.lifetimes.clear();
    schedule_.allocations.clear();
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      schedule_.placements[graph_.inputs[i]] = {Placement::Kind::kInput, static_cast<int>(i)};
    for (const ir::Output& output : graph_.outputs) {
      Placement& placement = schedule_.placements[output.buffer];
      if (placement.kind != Placement::Kind::kNowhere) continue;
      placement = {Placement::Kind::kOutput, static_cast<int>(schedule_.allocations.size())};
      schedule_.allocations.push_back(output.buffer);
    }
    for (int g = 0; g < static_cast<int>(schedule_.groups.size()); ++g) reuse_in_place(schedule_.groups[g], g);
    // A buffer that is aliased lives as long as the alias.
    for (size_t b = spans_.size(); b-- > 0;) extend(static_cast<BufferId>(b));
    for (BufferId b = 0; b < static_cast<BufferId>(spans_.size()); ++b) {
      Placement& placement = schedule_.placements[b];
      if (placement.kind != Placement::Kind::kNowhere || !spans_[b].memory) continue;
      placement = {Placement::Kind::kArena, static_cast<int>(schedule_.lifetimes.size())};
      const IndexExpr bytes =
          simplify(extent_elements(graph_, graph_.buffers[b]) * size_bytes(graph_.buffers[b].dtype), graph_.ranges());
      schedule_.lifetimes.push_back({b, spans_[b].first, spans_[b].last, bytes});
    }
  }

 private:
  void visit(const Group& group, int position) {
    if (!group.members.empty()) {
      for (const Group& member : group.members) visit(member, position);
      return;
    }
    std::set<BufferId> stored;
    const auto touch = [&](BufferId buffer, bool memory, bool write) {
      GroupSpan& span = spans_[buffer];
      if (span.first < 0) span.first = position;
      span.memory |= memory || (span.last >= 0 && span.last != position);
      span.written |= write;
      span.last = std::max(span.last, position);
    };
    for (const ir::NodeId id : group.nodes()) {
      const ir::Node& node = graph_.nodes[id];
      // A buffer that this group has stored is loaded from a register by its loop nests. Everything else is read from
      // memory, also by eager ops and templates.
      for (const BufferId b : buffers_read(schedule_, id)) touch(b, !stored.count(b) || !is_loop_nest(node), false);
      for (const BufferId b : ir::writes(node)) {
        touch(b, node.kind == ir::NodeKind::kCall, true);
        stored.insert(b);
      }
    }
  }

  /// Lets the result of a Map group reuse the memory of an input whose lifetime ends there. All accesses to both must
  /// have the same coordinates, and nothing may read the input after the result is stored.
  void reuse_in_place(const Group& group, int position) {
    if (group.kind != GroupKind::kLoops || group.strategy != LoopStrategy::kPointwise) return;
    std::vector<Access> all;
    for (const ir::NodeId id : group.nodes())
      for (Access& access : accesses(graph_.nodes[id])) all.push_back(std::move(access));
    std::set<BufferId> taken;
    for (const Access& out : all) {
      if (!out.store || !arena(out.buffer) || spans_[out.buffer].first != position) continue;
      for (const Access& in : all) {
        if (in.store || in.buffer == out.buffer || taken.count(in.buffer) || !dies(in.buffer, position) ||
            !same_memory(in.buffer, out.buffer))
          continue;
        const auto elsewhere = [&](const Access& a) {
          return (a.buffer == in.buffer && &a > &out) ||
                 ((a.buffer == in.buffer || a.buffer == out.buffer) && !(a.coords == out.coords));
        };
        if (std::any_of(all.begin(), all.end(), elsewhere) || out.partial || gathers(out.coords)) continue;
        taken.insert(in.buffer);
        schedule_.placements[out.buffer] = {Placement::Kind::kAlias, in.buffer};
        break;
      }
    }
  }

  bool arena(BufferId b) const { return schedule_.placements[b].kind == Placement::Kind::kNowhere && spans_[b].memory; }
  bool dies(BufferId b, int position) const {
    if (spans_[b].last != position) return false;
    const Placement::Kind kind = schedule_.placements[b].kind;
    if (kind == Placement::Kind::kInput) return graph_.buffers[b].donated && !is_output(b);
    return spans_[b].memory && spans_[b].first < position &&
           (kind == Placement::Kind::kNowhere || (kind == Placement::Kind::kAlias && !from_input(b)));
  }
  bool from_input(BufferId b) const {
    while (schedule_.placements[b].kind == Placement::Kind::kAlias) b = schedule_.placements[b].index;
    return schedule_.placements[b].kind != Placement::Kind::kNowhere;
  }
  bool is_output(BufferId b) const {
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](const ir::Output& output) { return output.buffer == b; });
  }
  bool same_memory(BufferId a, BufferId b) const {
    const Buffer &x = graph_.buffers[a], &y = graph_.buffers[b];
    return size_bytes(x.dtype) == size_bytes(y.dtype) && x.sizes == y.sizes && *x.strides == *y.strides;
  }
  void extend(BufferId b) {
    const int last = spans_[b].last;
    while (schedule_.placements[b].kind == Placement::Kind::kAlias) {
      b = schedule_.placements[b].index;
      spans_[b].last = std::max(spans_[b].last, last);
    }
  }

  Schedule& schedule_;
  const Graph& graph_;
  std::vector<GroupSpan> spans_;
};

}  // namespace

void place_buffers(Schedule& schedule, const Caps&) { Placer(schedule).place(); }

}  // namespace ocl::schedule
