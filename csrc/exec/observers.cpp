// csrc/exec/observers.cpp: see observers.h.
#include "csrc/exec/observers.h"

#include <mutex>
#include <utility>

#include "csrc/exec/guard_zones.h"
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

}  // namespace

void set_check_factory(ObserverFactory made) {
  const std::lock_guard lock(factory().mutex);
  factory().make = std::move(made);
}

std::vector<std::shared_ptr<Observer>> observers_of(const RunState& state) {
  std::vector<std::shared_ptr<Observer>> observers;
  // The guard zones come first, because a store outside of a kernel's buffers may also make results wrong.
  if (state.plan.guard_bytes > 0) observers.push_back(guard_zones(state));
  if (!state.plan.checked) return observers;
  ObserverFactory make;
  {
    const std::lock_guard lock(factory().mutex);
    make = factory().make;
  }
  OCL_ASSERT(make != nullptr, "a plan with the option check is made before the check is set up");
  if (std::shared_ptr<Observer> made = make(state)) observers.push_back(std::move(made));
  return observers;
}

}  // namespace ocl::exec
