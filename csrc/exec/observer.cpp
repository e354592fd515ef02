// csrc/exec/observer.cpp: see observer.h.
#include "csrc/exec/observer.h"

#include <algorithm>
#include <mutex>

#include "csrc/exec/guard_zones.h"
#include "csrc/exec/launch_info.h"
#include "csrc/exec/plan.h"
#include "csrc/support/error.h"

namespace ocl::exec {
namespace {

struct Factory {
  std::mutex mutex;
  ObserverFactory make;
};

Factory& factory() {
  static auto* instance = new Factory;  // Never destroyed: it may hold a Python function.
  return *instance;
}

int64_t bytes_of(const Plan& plan, ir::BufferId id) {
  const ir::Buffer& buffer = plan.schedule.graph.buffers[id];
  int64_t last = 0;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) {
    const int64_t size = value_of(plan, buffer.sizes[d]);
    if (size == 0) return 0;
    last += (size - 1) * value_of(plan, (*buffer.strides)[d]);
  }
  return (last + 1) * ir::size_bytes(buffer.dtype);
}

}  // namespace

char* address_of(const Plan& plan, const RunMemory& memory, const BufferSource& source) {
  switch (source.kind) {
    case BufferSource::Kind::kInput:
      return static_cast<char*>(memory.inputs[source.index]);
    case BufferSource::Kind::kOutput:
      return static_cast<char*>(memory.outputs[source.index]);
    default:
      return memory.arena ? memory.arena + plan.memory.offsets[source.index] : nullptr;
  }
}

int64_t extent_bytes(const Plan& plan, const BufferSource& source) {
  switch (source.kind) {
    case BufferSource::Kind::kInput:
      return bytes_of(plan, plan.schedule.graph.inputs[source.index]);
    case BufferSource::Kind::kOutput:
      return bytes_of(plan, plan.schedule.allocations[source.index]);
    default:
      return value_of(plan, plan.interval_bytes[source.index]);
  }
}

void set_check_factory(ObserverFactory made) {
  const std::lock_guard lock(factory().mutex);
  factory().make = std::move(made);
}

void add_observers(Plan& plan, bool check) {
  // The guard zones come first, because a store outside of a kernel's buffers may also make results wrong.
  if (plan.guard_bytes > 0) plan.observers.push_back(guard_zones(plan));
  if (!check) return;
  ObserverFactory make;
  {
    const std::lock_guard lock(factory().mutex);
    make = factory().make;
  }
  OCL_ASSERT(make != nullptr, "a plan with the option check is made before the check is set up");
  if (std::shared_ptr<Observer> made = make(plan)) plan.observers.push_back(std::move(made));
}

}  // namespace ocl::exec
