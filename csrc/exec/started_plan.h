// csrc/exec/started_plan.h: a plan that a thread makes while its caller does other work.
#pragma once

#include <future>
#include <memory>

#include "csrc/exec/plan.h"
#include "csrc/exec/plan_options.h"

namespace ocl::exec {

class StartedPlan {
 public:
  /// Begins a plan: the thread generates the kernels, builds and checks them. It also schedules the graph, unless the caller
  /// needs the schedule at once. `options` hold for make_plan, too.
  StartedPlan(const ir::Graph& graph, runtime::Device& device, const runtime::BinaryStore& store, const PlanOptions& options,
              bool scheduled_at_once);
  /// True if kernels of the device are built beside this process, and a plan with these options is not watched.
  static bool is_possible(runtime::Device& device, const runtime::BinaryStore& store, const PlanOptions& options);

  /// True if make_plan would make the same plan of `graph` now: measured choices and the kernels that may be used are as at the
  /// start.
  bool fits(const ir::Graph& graph) const;
  /// The plan's schedule, if it was made at once. Do not call it after finish.
  const schedule::Schedule& schedule() const;
  /// Waits for the thread. Fills `plan` and returns as fill_plan does, or throws what fill_plan throws. Call it once. Only the
  /// time of this wait counts as time of building and checking.
  bool finish(std::unique_ptr<Plan>& plan);

 private:
  struct Work;
  std::shared_ptr<Work> work_;  // The thread has it, too: a plan may be dropped before it is finished.
  std::future<void> done_;
};

}  // namespace ocl::exec
