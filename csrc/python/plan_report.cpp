// csrc/python/plan_report.cpp: walks a plan's schedule for the report.
#include "csrc/python/plan_report.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>

#include "csrc/python/fields.h"
#include "csrc/schedule/dependence.h"

namespace ocl::python {
namespace {

using schedule::Group;
using schedule::GroupKind;
using schedule::Neighbour;

class Reporter {
 public:
  explicit Reporter(const exec::RunState& state)
      : state_(state), plan_(exec::whole_plan(state.plan)), schedule_(plan_.schedule), graph_(plan_.schedule.graph) {
    position_of_.assign(graph_.nodes.size(), -1);
    for (size_t position = 0; position < schedule_.groups.size(); ++position)
      for (const ir::NodeId node : schedule_.groups[position].nodes()) position_of_[node] = static_cast<int>(position);
    writer_of_.assign(graph_.buffers.size(), ir::kNone);
    for (ir::NodeId node = static_cast<ir::NodeId>(graph_.nodes.size()) - 1; node >= 0; --node)
      for (const ir::BufferId buffer : ir::writes(graph_.nodes[node])) writer_of_[buffer] = node;
  }

  py::dict report() const {
    py::dict result;
    py::list groups, buffers;
    for (size_t position = 0; position < schedule_.groups.size(); ++position)
      groups.append(group_dict(schedule_.groups[position], plan_.steps[position]));
    for (size_t b = 0; b < graph_.buffers.size(); ++b) buffers.append(buffer_dict(static_cast<ir::BufferId>(b)));
    result["groups"] = groups;
    result["buffers"] = buffers;
    result["memory"] = memory_dict();
    result["log"] = schedule_.log;
    result["device"] = plan_.device->index();
    return result;
  }

 private:
  py::object value(const ir::IndexExpr& expr) const {
    if (expr.is_const()) return py::int_(expr.constant());
    return state_.bound ? py::object(py::int_(exec::value_of(state_, expr))) : py::none();
  }

  py::list values(const ir::Shape& shape) const {
    py::list result;
    for (const ir::IndexExpr& expr : shape) result.append(value(expr));
    return result;
  }

  py::dict group_dict(const Group& group, const exec::Step& step) const {
    py::dict d;
    py::list nodes, inlined;
    std::vector<std::string> refused;
    std::set<ir::BufferId> read, written;
    for (const ir::NodeId id : group.nodes()) {
      const ir::Node& node = graph_.nodes[id];
      nodes.append(py::make_tuple(node.origin.op, node.origin.source));
      for (const ir::Origin& origin : node.inlined) inlined.append(py::make_tuple(origin.op, origin.source));
      refused.insert(refused.end(), node.refused.begin(), node.refused.end());
      for (const ir::BufferId b : schedule::buffers_read(schedule_, id)) read.insert(b);
      for (const ir::BufferId b : ir::writes(node)) written.insert(b);
    }
    OCL_ITEMS(step, launch, kept)
    d["nodes"] = nodes;
    d["inlined"] = inlined;
    for (const ir::BufferId b : written)  // A group does not read from memory what it computes itself.
      if (graph_.buffers[b].role != ir::BufferRole::kInput) read.erase(b);
    d["reads"] = in_memory(read);
    d["writes"] = in_memory(written);
    d["fused"] = reasons_of(group);
    d["apart"] = apart_of(group);
    d["refused"] = refused;
    if (step.launch == ir::kNone) return d;
    const exec::Launch& launch = plan_.launches[step.launch];
    OCL_ITEMS(launch.source, name, kind, text)
    d["origin"] = launch.origin;
    d["variant"] = group.kind == GroupKind::kTemplate
                       ? std::string(kernel_row(group.launch.kernel).name) + " " + group.launch.variant
                       : std::string();
    d["local"] = launch.source.local;
    d["work_groups"] = values({launch.source.groups.begin(), launch.source.groups.end()});
    d["bytes"] = value(launch.work.bytes);
    d["flops"] = value(launch.work.flops);
    return d;
  }

  py::list in_memory(const std::set<ir::BufferId>& buffers) const {
    py::list result;
    for (const ir::BufferId b : buffers)
      if (schedule_.placements[b].kind != schedule::Placement::Kind::kNowhere) result.append(b);
    return result;
  }

  static std::vector<std::string> reasons_of(const Group& group) {
    std::vector<std::string> reasons = group.reasons;
    for (const Group& member : group.members) {
      const std::vector<std::string> more = reasons_of(member);
      reasons.insert(reasons.end(), more.begin(), more.end());
    }
    return reasons;
  }

  py::list apart_of(const Group& group) const {
    constexpr const char* kRelations[] = {"producer", "consumer", "sibling"};
    const std::vector<ir::NodeId> nodes = group.nodes();
    const int own = nodes.empty() ? -1 : position_of_[nodes[0]];
    py::list result;
    const auto add = [&](const Group& part) {
      for (const Neighbour& other : part.apart) {
        const int position = position_of_[other.node];
        if (position == own || position < 0) continue;  // In another member of the same batch, or in no group.
        py::dict d;
        d["relation"] = kRelations[static_cast<int>(other.relation)];
        d["group"] = position;
        d["op"] = graph_.nodes[other.node].origin.op;
        OCL_ITEMS(other, buffer, reason)
        result.append(d);
      }
    };
    add(group);
    for (const Group& member : group.members) add(member);
    return result;
  }

  py::dict buffer_dict(ir::BufferId b) const {
    constexpr const char* kPlaces[] = {"registers", "input", "result", "arena", "alias"};
    const ir::Buffer& buffer = graph_.buffers[b];
    const ir::NodeId writer = writer_of_[b];
    py::dict d;
    d["name"] = buffer.name;
    d["dtype"] = name(buffer.dtype);
    d["sizes"] = values(buffer.sizes);
    d["bytes"] = value(ir::product(buffer.sizes) * ir::size_bytes(buffer.dtype));
    d["place"] = kPlaces[static_cast<int>(schedule_.placements[b].kind)];
    d["parameter"] = buffer.is_parameter;
    d["op"] = writer == ir::kNone ? "" : graph_.nodes[writer].origin.op;
    d["source"] = writer == ir::kNone ? "" : graph_.nodes[writer].origin.source;
    return d;
  }

  /// Returns the memory plan as a dict. `first` and `last` of an interval are positions of groups in launch order. The scratch
  /// memory of a kernel has the buffer None.
  py::dict memory_dict() const {
    py::list intervals;
    std::vector<std::optional<ir::BufferId>> held(plan_.intervals.size());
    for (size_t b = 0; b < plan_.interval_of.size(); ++b)
      if (plan_.interval_of[b] != ir::kNone) held[plan_.interval_of[b]] = static_cast<ir::BufferId>(b);
    for (size_t i = 0; i < plan_.intervals.size(); ++i) {
      py::dict d;
      d["buffer"] = held[i] ? py::object(py::int_(*held[i])) : py::object(py::none());
      d["first"] = plan_.intervals[i].first;
      d["last"] = plan_.intervals[i].last;
      d["bytes"] = value(plan_.interval_bytes[i]);
      d["kept"] = !plan_.kept_offsets.empty() && plan_.kept_offsets[i] >= 0;
      intervals.append(d);
    }
    py::dict d;
    d["arena_bytes"] = state_.memory.arena_bytes;
    d["kept_bytes"] = plan_.kept_size_bytes;
    d["intervals"] = intervals;
    return d;
  }

  const exec::RunState& state_;
  const exec::Plan& plan_;
  const schedule::Schedule& schedule_;
  const ir::Graph& graph_;
  std::vector<int> position_of_;       // Node -> position of its group.
  std::vector<ir::NodeId> writer_of_;  // Buffer -> the first node that writes it.
};

}  // namespace

py::dict plan_report(exec::Executor& executor) {
  std::unique_lock lock(executor.mutex, std::defer_lock);
  {
    const py::gil_scoped_release release;  // The thread that runs the plan may wait for the GIL, and so may one that builds.
    exec::whole_plan(*executor.plan);
    lock.lock();
  }
  return Reporter(executor.state).report();
}

}  // namespace ocl::python
