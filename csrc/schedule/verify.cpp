// csrc/schedule/verify.cpp: the rules that a schedule must satisfy, each with its check.
#include "csrc/schedule/verify.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include "csrc/schedule/body.h"
#include "csrc/schedule/dependence.h"
#include "csrc/schedule/describe.h"
#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/pass.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

namespace {

/// When a node runs: the launch, the member of a batch, and the node's turn within the member.
struct Position {
  int launch = -1, member = 0, turn = 0;
  // True if this is the latest of several positions in different members of a batch, which run in no order.
  bool mixed = false;

  bool precedes(const Position& later) const {
    if (launch != later.launch) return launch < later.launch;
    return !mixed && member == later.member && turn <= later.turn;
  }
  /// Makes this the later of both positions.
  void extend(const Position& other) {
    if (other.launch < launch) return;
    if (other.launch > launch) {
      *this = other;
      return;
    }
    mixed = mixed || other.mixed || other.member != member;
    turn = std::max(turn, other.turn);
  }
};

/// What the rules need to know, computed once.
struct Facts {
  explicit Facts(const Schedule& s) : schedule(s), position(s.graph.nodes.size()), times(s.graph.nodes.size(), 0) {
    for (size_t g = 0; g < s.groups.size(); ++g) visit(s.groups[g], static_cast<int>(g));
    first_use.assign(s.graph.buffers.size(), -1);
    last_use.assign(s.graph.buffers.size(), -1);
    for (size_t i = 0; i < position.size(); ++i) {
      if (times[i] == 0) continue;
      const NodeId node = static_cast<NodeId>(i);
      for (const auto& list : {buffers_read(s, node), ir::writes(s.graph.nodes[i])})
        for (const BufferId b : list) {
          const size_t k = static_cast<size_t>(b);
          if (first_use[k] < 0 || position[i].launch < first_use[k]) first_use[k] = position[i].launch;
          last_use[k] = std::max(last_use[k], position[i].launch);
        }
    }
  }

  const Node& node(NodeId id) const { return schedule.graph.nodes[id]; }
  const Position& when(NodeId id) const { return position[id]; }
  const Placement& placement(BufferId b) const { return schedule.placements[b]; }
  bool is_node(NodeId id) const { return id >= 0 && static_cast<size_t>(id) < position.size(); }
  bool is_buffer(BufferId b) const { return b >= 0 && static_cast<size_t>(b) < schedule.graph.buffers.size(); }

  const Schedule& schedule;
  std::vector<Position> position;        // Position of each node.
  std::vector<int> times;                // For each node, the number of groups, or phases, that have it.
  std::vector<int> first_use, last_use;  // First and last launch that access each buffer. -1: none does.

 private:
  void visit(const Group& group, int launch) {
    for (size_t m = 0; m < group.members.size(); ++m) number(group.members[m], launch, static_cast<int>(m));
    if (group.members.empty()) number(group, launch, 0);
  }
  void number(const Group& group, int launch, int member) {
    int turn = 0;
    const auto add = [&](NodeId id) {
      if (!is_node(id)) fail(ErrorKind::kInternal, "group " + std::to_string(launch) + " has a node that the graph has not");
      position[id] = {launch, member, turn++};
      ++times[id];
    };
    if (group.main != ir::kNone) add(group.main);
    if (group.call != ir::kNone) add(group.call);
    for (const Phase& phase : group.phases)
      for (const NodeId id : phase.nodes) add(id);
    for (const NodeId id : group.epilogue) add(id);
  }
};

std::string group_name(int launch) { return "in group " + std::to_string(launch); }
std::string buffer_name(const Facts& f, BufferId b) {
  return "for buffer " + std::to_string(b) + " (" + f.schedule.graph.buffers[b].name + ")";
}
std::string node_name(const Facts& f, NodeId id) {
  const ir::Origin& origin = f.node(id).origin;
  return "at node " + std::to_string(id) + (origin.op.empty() ? "" : " (" + origin.op + ", " + origin.source + ")");
}

/// Calls `visit` for each launch and, in a batch, for each member. Returns the name of the first group for which
/// `visit` returns false, or "".
template <typename Visit>
std::string each_group(const Facts& f, Visit visit) {
  for (size_t g = 0; g < f.schedule.groups.size(); ++g) {
    const Group& group = f.schedule.groups[g];
    if (!visit(group)) return group_name(static_cast<int>(g));
    for (const Group& member : group.members)
      if (!visit(member)) return group_name(static_cast<int>(g));
  }
  return "";
}

template <typename Holds>
std::string each_buffer(const Facts& f, Holds holds) {
  for (BufferId b = 0; b < static_cast<BufferId>(f.schedule.graph.buffers.size()); ++b)
    if (!holds(b)) return buffer_name(f, b);
  return "";
}

/// A loop nest is in no group if templates read copies of its results only. reads_have_memory finds other readers.
std::string nodes_in_one_group(const Facts& f) {
  const std::vector<bool> visible = visible_buffers(f.schedule.graph);
  for (size_t i = 0; i < f.times.size(); ++i) {
    const Node& node = f.schedule.graph.nodes[i];
    const std::vector<BufferId> written = ir::writes(node);
    const bool is_unread = f.times[i] == 0 && is_loop_nest(node) &&
                           std::none_of(written.begin(), written.end(), [&](BufferId b) { return visible[b]; });
    if (f.times[i] != 1 && !is_unread) return node_name(f, static_cast<NodeId>(i));
  }
  return "";
}

bool has_what_its_kind_needs(const Facts& f, const Group& group) {
  const bool loops = group.kind == GroupKind::kLoops, is_template = group.kind == GroupKind::kTemplate;
  const bool batch = group.kind == GroupKind::kBatch, call = group.kind == GroupKind::kCall;
  if (loops == group.phases.empty() || is_template == (group.main == ir::kNone) || call == (group.call == ir::kNone))
    return false;
  if (batch == group.members.empty() || (!is_template && !group.epilogue.empty())) return false;
  if (call) return f.node(group.call).kind == ir::NodeKind::kCall;
  if (is_template)
    return !is_loop_nest(f.node(group.main)) && std::all_of(group.epilogue.begin(), group.epilogue.end(),
                                                            [&](NodeId id) { return f.node(id).kind == ir::NodeKind::kMap; });
  return std::all_of(group.members.begin(), group.members.end(), [](const Group& member) {
    return member.kind == GroupKind::kLoops && member.strategy != LoopStrategy::kColumn;
  });
}

bool shares_loops(const Facts& f, const Group& group) {
  if (group.kind != GroupKind::kLoops) return true;
  for (const Phase& phase : group.phases)
    for (const NodeId id : phase.nodes) {
      const Node& node = f.node(id);
      if (!is_loop_nest(node) || node.sizes != group.sizes) return false;
      if (phase.inner ? node.reduce_sizes != group.reduce_sizes : node.kind != ir::NodeKind::kMap) return false;
    }
  return true;
}

/// Checks what phases read. The results of a reduction exist only after its phase. Values that a Map in an inner phase
/// computes for each element do not exist after that phase.
bool passes_values_between_phases(const Facts& f, const Group& group) {
  std::set<BufferId> gone;  // Buffers that Maps of earlier inner phases store.
  for (const Phase& phase : group.phases) {
    std::set<BufferId> maps, unfinished;
    for (const NodeId id : phase.nodes) {
      const Node& node = f.node(id);
      for (const BufferId b : ir::reads(node))
        if (gone.count(b) || unfinished.count(b)) return false;
      if (!phase.inner) continue;
      for (const BufferId b : ir::writes(node)) (node.kind == ir::NodeKind::kMap ? maps : unfinished).insert(b);
    }
    gone.merge(maps);
  }
  return true;
}

/// The last writes and reads of a buffer so far, in program order.
struct Uses {
  Position write, read;
  std::vector<NodeId> writers;
};

bool may_reorder(const Facts& f, const Uses& uses, NodeId id, BufferId buffer) {
  return std::all_of(uses.writers.begin(), uses.writers.end(), [&](NodeId writer) {
    return f.when(writer).precedes(f.when(id)) || writes_disjoint(f.schedule.graph, f.node(writer), f.node(id), buffer);
  });
}

/// Checks each access in program order: a read comes after the write of the value that it reads, and a write comes
/// after all reads of the value that it overwrites.
std::string respects_dependences(const Facts& f) {
  std::vector<Uses> uses(f.schedule.graph.buffers.size());
  Position call;
  std::map<int, Position> calls;
  for (NodeId id = 0; id < static_cast<NodeId>(f.position.size()); ++id) {
    const Position& now = f.when(id);
    if (now.launch < 0) continue;  // It is in no group.
    const std::vector<BufferId> read = buffers_read(f.schedule, id);
    for (const BufferId b : read)
      if (!uses[b].write.precedes(now)) return node_name(f, id);
    for (const BufferId b : ir::writes(f.node(id))) {
      Uses& use = uses[b];
      if (!use.read.precedes(now)) return node_name(f, id);
      if (!use.write.precedes(now) && !may_reorder(f, use, id, b)) return node_name(f, id);
      use.write.extend(now);
      use.writers.push_back(id);
    }
    for (const BufferId b : read) uses[b].read.extend(now);
    if (f.node(id).kind != ir::NodeKind::kCall) continue;
    const int started = f.node(id).waits_for;
    if (!(started == ir::kNone ? call : calls.at(started)).precedes(now)) return node_name(f, id);
    if (started != ir::kNone) continue;
    calls[f.node(id).call] = call = now;
  }
  return "";
}

/// Returns the buffer at the end of a chain of aliases, which has the memory of `b`. kNone if the chain is circular or
/// invalid.
BufferId memory_of(const Facts& f, BufferId b) {
  for (size_t hops = 0; hops <= f.schedule.placements.size() && f.is_buffer(b); ++hops) {
    if (f.placement(b).kind != Placement::Kind::kAlias) return b;
    b = f.placement(b).index;
  }
  return ir::kNone;
}

bool has_its_place(const Facts& f, BufferId b) {
  const Schedule& s = f.schedule;
  const Placement& placement = f.placement(b);
  const ir::Buffer& buffer = s.graph.buffers[b];
  const auto entry = [&](size_t size) { return placement.index >= 0 && static_cast<size_t>(placement.index) < size; };
  switch (placement.kind) {
    case Placement::Kind::kInput:
      return buffer.input == placement.index;
    case Placement::Kind::kOutput:
      return entry(s.allocations.size()) && s.allocations[placement.index] == b;
    case Placement::Kind::kArena:
      return entry(s.lifetimes.size()) && s.lifetimes[placement.index].buffer == b;
    default:
      return buffer.role != ir::BufferRole::kInput;
  }
}

bool alias_has_same_layout(const Facts& f, BufferId b) {
  if (f.placement(b).kind != Placement::Kind::kAlias) return true;
  const BufferId memory = memory_of(f, b);
  if (memory == ir::kNone || f.placement(memory).kind == Placement::Kind::kNowhere) return false;
  const ir::Buffer &x = f.schedule.graph.buffers[b], &y = f.schedule.graph.buffers[memory];
  if (f.placement(memory).kind == Placement::Kind::kInput && !y.donated) return false;
  return size_bytes(x.dtype) == size_bytes(y.dtype) && x.sizes == y.sizes && x.strides == y.strides;
}

bool outputs_have_memory(const Facts& f, BufferId b) {
  const Placement::Kind kind = f.placement(b).kind;
  return kind == Placement::Kind::kInput || kind == Placement::Kind::kOutput;
}

/// A buffer that one group stores and reads itself may stay in registers. Every other buffer that is read must be in
/// memory.
std::string reads_have_memory(const Facts& f) {
  std::vector<Position> written(f.schedule.graph.buffers.size());
  const auto nowhere = [&](BufferId b) { return f.placement(b).kind == Placement::Kind::kNowhere; };
  for (size_t g = 0; g < f.schedule.groups.size(); ++g)
    for (const NodeId id : f.schedule.groups[g].nodes()) {
      const Position& now = f.when(id);
      for (const BufferId b : buffers_read(f.schedule, id)) {
        const Position& last = written[b];
        const bool in_register = last.launch == now.launch && last.member == now.member && is_loop_nest(f.node(id));
        if (!in_register && nowhere(b)) return buffer_name(f, b);
      }
      for (const BufferId b : ir::writes(f.node(id))) {
        if (f.node(id).kind == ir::NodeKind::kCall && nowhere(b)) return buffer_name(f, b);
        written[b] = now;
      }
    }
  return "";
}

/// A loop nest that stores nothing would have an empty body. Groups of templates, calls and batches have no phases.
bool stores_something(const Facts& f, const Group& group) {
  const auto stores = [&](NodeId id) {
    const std::vector<BufferId> written = ir::writes(f.node(id));
    return std::any_of(written.begin(), written.end(),
                       [&](BufferId b) { return f.placement(b).kind != Placement::Kind::kNowhere; });
  };
  const std::vector<NodeId> nodes = group.nodes();
  return group.phases.empty() || std::any_of(nodes.begin(), nodes.end(), stores);
}

bool lifetime_covers_uses(const Facts& f, BufferId b) {
  const BufferId memory = memory_of(f, b);
  if (f.first_use[b] < 0 || memory == ir::kNone || f.placement(memory).kind != Placement::Kind::kArena) return true;
  const Lifetime& life = f.schedule.lifetimes[f.placement(memory).index];
  return life.first <= f.first_use[b] && f.last_use[b] <= life.last;
}

/// Checks that buffers with the same memory follow one another. The last group that uses one buffer may be the first
/// group that uses the next buffer.
std::string aliases_take_turns(const Facts& f) {
  std::map<BufferId, std::vector<BufferId>> sharing;
  for (BufferId b = 0; b < static_cast<BufferId>(f.schedule.placements.size()); ++b)
    if (f.placement(b).kind == Placement::Kind::kAlias && memory_of(f, b) != ir::kNone) sharing[memory_of(f, b)].push_back(b);
  // An input is alive from the beginning.
  const auto first = [&](BufferId b) { return f.placement(b).kind == Placement::Kind::kInput ? -1 : f.first_use[b]; };
  for (auto& [memory, buffers] : sharing) {
    if (f.first_use[memory] >= 0) buffers.push_back(memory);
    std::sort(buffers.begin(), buffers.end(), [&](BufferId a, BufferId b) { return first(a) < first(b); });
    for (size_t i = 1; i < buffers.size(); ++i)
      if (first(buffers[i - 1]) == first(buffers[i]) || f.last_use[buffers[i - 1]] > first(buffers[i]))
        return buffer_name(f, buffers[i]);
  }
  return "";
}

struct Rule {
  const char* rule;
  ScheduleLevel from;  // The first level at which the rule holds.
  /// Returns where the rule is broken, or "".
  std::string (*broken)(const Facts&);
};

constexpr Rule kRules[] = {
    {"each node whose results are read is in one group", ScheduleLevel::kGrouped, nodes_in_one_group},
    {"a group has what its kind needs, and nothing else", ScheduleLevel::kGrouped,
     [](const Facts& f) { return each_group(f, [&](const Group& g) { return has_what_its_kind_needs(f, g); }); }},
    {"the nodes of a group share its loops, and outer phases have Maps alone", ScheduleLevel::kGrouped,
     [](const Facts& f) { return each_group(f, [&](const Group& g) { return shares_loops(f, g); }); }},
    {"an inner phase reads no Map of an earlier inner phase, and no reduction of its own", ScheduleLevel::kGrouped,
     [](const Facts& f) { return each_group(f, [&](const Group& g) { return passes_values_between_phases(f, g); }); }},
    {"nothing runs before what it depends on", ScheduleLevel::kGrouped, respects_dependences},
    {"there is a placement for each buffer", ScheduleLevel::kPlaced,
     [](const Facts& f) {
       return f.schedule.placements.size() == f.schedule.graph.buffers.size() ? std::string() : std::string("in the schedule");
     }},
    {"a placement and the table that it points to name the same buffer", ScheduleLevel::kPlaced,
     [](const Facts& f) { return each_buffer(f, [&](BufferId b) { return has_its_place(f, b); }); }},
    {"an alias leads to memory of the same layout that may be overwritten", ScheduleLevel::kPlaced,
     [](const Facts& f) { return each_buffer(f, [&](BufferId b) { return alias_has_same_layout(f, b); }); }},
    {"an output is an input or memory of its own", ScheduleLevel::kPlaced,
     [](const Facts& f) {
       for (const ir::Output& output : f.schedule.graph.outputs)
         if (!outputs_have_memory(f, output.buffer)) return buffer_name(f, output.buffer);
       return std::string();
     }},
    {"what a group reads and has not stored itself is in memory", ScheduleLevel::kPlaced, reads_have_memory},
    {"each group of loops stores to memory", ScheduleLevel::kPlaced,
     [](const Facts& f) { return each_group(f, [&](const Group& g) { return stores_something(f, g); }); }},
    {"a lifetime covers all groups that use the memory", ScheduleLevel::kPlaced,
     [](const Facts& f) { return each_buffer(f, [&](BufferId b) { return lifetime_covers_uses(f, b); }); }},
    {"buffers that share memory are not alive at the same time", ScheduleLevel::kPlaced, aliases_take_turns},
};

}  // namespace

void verify(const Schedule& schedule, ScheduleLevel level) {
  const Facts facts(schedule);
  for (const Rule& rule : kRules) {
    if (rule.from > level) continue;
    const std::string where = rule.broken(facts);
    if (!where.empty())
      fail(ErrorKind::kInternal,
           std::string("the schedule breaks the rule \"") + rule.rule + "\" " + where + "\n" + str(schedule));
  }
}

}  // namespace ocl::schedule
