// csrc/exec/plan.cpp: see plan.h.
#include "csrc/exec/plan.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl::exec {

const Plan& WholePlan::get() {
  const std::lock_guard lock(mutex_);
  if (!made_) made_ = make_();
  return *made_;
}

const Plan& whole_plan(const Plan& plan) { return plan.whole ? plan.whole->get() : plan; }

std::string origin_of(const schedule::Schedule& schedule, const schedule::Group& group) {
  std::vector<std::string> ops, sources;
  auto add = [](std::vector<std::string>& list, const std::string& item) {
    if (!item.empty() && std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  };
  for (const ir::NodeId node : group.nodes()) {
    add(ops, schedule.graph.nodes[node].origin.op);
    add(sources, schedule.graph.nodes[node].origin.source);
  }
  auto join = [](const std::vector<std::string>& list, size_t most) {
    std::string text;
    for (size_t i = 0; i < std::min(list.size(), most); ++i) text += (i ? ", " : "") + list[i];
    if (list.size() > most) text += ", ...";
    return text;
  };
  return join(ops, 8) + (sources.empty() ? "" : " (" + join(sources, 3) + ")");
}

BufferSource source_of(const Plan& plan, ir::BufferId buffer) {
  const schedule::Schedule& schedule = plan.schedule;
  BufferSource source;
  source.element_bytes = ir::size_bytes(schedule.graph.buffers[buffer].dtype);
  for (size_t hops = 0; hops <= schedule.placements.size(); ++hops) {
    const schedule::Placement& placement = schedule.placements[buffer];
    switch (placement.kind) {
      case schedule::Placement::Kind::kInput:
        source.kind = BufferSource::Kind::kInput;
        source.index = placement.index;
        return source;
      case schedule::Placement::Kind::kOutput:
        source.kind = BufferSource::Kind::kOutput;
        source.index = placement.index;
        return source;
      case schedule::Placement::Kind::kArena:
        source.kind = BufferSource::Kind::kArena;
        source.index = plan.interval_of[buffer];
        return source;
      case schedule::Placement::Kind::kAlias:
        buffer = placement.index;
        break;
      case schedule::Placement::Kind::kNowhere:
        fail(ErrorKind::kInternal, "a kernel takes buffer " + schedule.graph.buffers[buffer].name + ", which has no memory");
    }
  }
  fail(ErrorKind::kInternal, "aliases of buffer " + schedule.graph.buffers[buffer].name + " form a circle");
}

}  // namespace ocl::exec
