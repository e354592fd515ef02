// csrc/exec/started_plan.cpp: see started_plan.h.
#include "csrc/exec/started_plan.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/checks/device_check.h"
#include "csrc/exec/fill_plan.h"
#include "csrc/exec/tune.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/build_progress.h"
#include "csrc/runtime/build/compiles_at_launch.h"
#include "csrc/runtime/opencl/background.h"

namespace ocl::exec {

struct StartedPlan::Work {
  const ir::Graph graph;
  runtime::Device& device;
  const runtime::BinaryStore store;
  const PlanOptions options;
  const std::shared_ptr<const schedule::Measured> measured;
  const size_t faults;
  std::unique_ptr<Plan> plan = std::make_unique<Plan>();
  bool good = false;

  bool is_current() const { return measured == measured_of(device.index()) && faults == checks::fault_count(); }
};

StartedPlan::StartedPlan(const ir::Graph& graph, runtime::Device& device, const runtime::BinaryStore& store,
                         const PlanOptions& options, bool scheduled_at_once)
    : work_(new Work{graph, device, store, options, measured_of(device.index()), checks::fault_count()}) {
  if (scheduled_at_once) schedule_plan(*work_->plan, graph, device, options);
  done_ = runtime::run_in_background([work = work_, scheduled_at_once] {
    Plan& plan = *work->plan;
    if (!scheduled_at_once) schedule_plan(plan, work->graph, work->device, work->options);
    work->good = build_plan(plan, work->device, work->store, work->options);
  });
}

bool StartedPlan::is_possible(runtime::Device& device, const runtime::BinaryStore& store, const PlanOptions& options) {
  const bool plain = options.dump_dir.empty() && options.choice.empty() && !options.check && !options.guard_zones;
  return plain && runtime::most_workers(device) > 0 &&
         !runtime::compiles_at_launch(device, store, runtime::store_prefix(device));
}

bool StartedPlan::fits(const ir::Graph& graph) const { return work_->is_current() && work_->graph.str() == graph.str(); }

const schedule::Schedule& StartedPlan::schedule() const { return work_->plan->schedule; }

bool StartedPlan::finish(std::unique_ptr<Plan>& plan) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const runtime::WaitsForBuilds waits;
    done_.wait();
  }
  plan = std::move(work_->plan);
  done_.get();
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  plan->build_seconds = std::min(plan->build_seconds, waited);
  plan->check_seconds = waited - plan->build_seconds;
  return work_->good;
}

}  // namespace ocl::exec
