// csrc/exec/make_plan.cpp: see make_plan.h.
#include "csrc/exec/make_plan.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "csrc/exec/fill_plan.h"
#include "csrc/kernels/kernels.h"
#include "csrc/support/compiler_crash.h"
#include "csrc/support/group_refused.h"
#include "csrc/support/log.h"

namespace ocl::exec {
namespace {

// Kernels whose work-items share work have at least as many. A driver that grants fewer gets kernels of single work-items.
constexpr int kLeastItems = 32;

/// Warns once for each kernel and step.
void warn(const Plan& plan, const Launch& launch, const std::string& why, const std::string& step) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;  // Never destroyed, because threads may outlive static destruction.
  {
    const std::lock_guard lock(mutex);
    if (!said->insert(launch.source.name + launch.origin + step).second) return;
  }
  log_message(LogLevel::kWarning, "exec",
              plan.device->describe() + " cannot be given kernel " + launch.source.name + ": " + why + "; " + step +
                  "\n  where: " + plan.label + ": " + launch.origin);
}

/// Removes the hand-written kernel of a group. Returns false if the project cannot do without it.
bool disable(const schedule::Group& group, const Plan& plan, PlanOptions& options) {
  PlanOptions without = options;
  without.disable.emplace_back(kernel_row(group.launch.kernel).name);
  try {
    caps_for(*plan.device, without);
  } catch (const Error&) {
    return false;
  }
  options.disable = without.disable;
  return true;
}

/// The (op, source line) of nodes, as in schedule::Options.
using Ops = std::set<std::pair<std::string, std::string>>;

Ops ops_of(const Plan& plan, const schedule::Group& group) {
  Ops ops;
  for (const ir::NodeId id : group.nodes()) {
    const ir::Node& node = plan.schedule.graph.nodes[id];
    ops.emplace(node.origin.op, node.origin.source);
    for (const ir::Origin& inlined : node.inlined) ops.emplace(inlined.op, inlined.source);
  }
  return ops;
}

/// Changes `options` so that the next plan has simpler kernels in place of those in `crash`. Returns false if nothing simpler
/// is left for one of them; then crash.ops has its ops. `plan` has the schedule and the launches.
bool avoid_crash(const Plan& plan, CompilerCrash& crash, PlanOptions& options) {
  const size_t kernels = crash.kernels.size();
  Ops hopeless;
  for (size_t k = 0; k < kernels; ++k) {
    const Launch& launch = plan.launches[crash.kernels[k]];
    const schedule::Group& group = plan.schedule.groups[launch.group];
    const Ops ops = ops_of(plan, group);
    const size_t before = options.schedule.alone.size();
    options.schedule.alone.insert(ops.begin(), ops.end());
    if (options.schedule.alone.size() > before)
      warn(plan, launch, crash.why, "each of its ops gets a kernel of its own without vectors, which may be slow");
    else if (group.kind == schedule::GroupKind::kTemplate && disable(group, plan, options))
      warn(plan, launch, crash.why, "the plan does without this kind of kernel, and may be slow");
    else
      hopeless.insert(ops.begin(), ops.end());
  }
  crash.ops.assign(hopeless.begin(), hopeless.end());
  return hopeless.empty();
}

/// Changes `options` so that the next plan has smaller work-groups in place of those in `refused`; at last, kernels of single
/// work-items. Returns false if even these are refused.
bool shrink_groups(const Plan& plan, const GroupRefused& refused, PlanOptions& options) {
  const auto before = options.schedule.most_items;
  bool single = false;
  for (const auto& [kernel, granted] : refused.most_items) {
    const Launch& launch = plan.launches[kernel];
    const auto& local = launch.source.local;
    const size_t items = local[0] * local[1] * local[2];
    const auto most = static_cast<int>(std::bit_floor(granted));
    bool smaller = false;
    if (most >= kLeastItems)
      for (const auto& op : ops_of(plan, plan.schedule.groups[launch.group])) {
        const auto known = before.find(op);
        smaller = smaller || known == before.end() || known->second > most;
        int& limit = options.schedule.most_items.try_emplace(op, most).first->second;
        limit = std::min(limit, most);
      }
    log_message(LogLevel::kInfo, "exec",
                plan.device->describe() + " grants kernel " + launch.source.name + " " + std::to_string(granted) +
                    " work-items, not " + std::to_string(items) + "; the plan is made again with " +
                    (smaller ? "at most " + std::to_string(most) : "kernels of single work-items") +
                    "\n  where: " + plan.label + ": " + launch.origin);
    single = single || !smaller;
  }
  if (single && options.kernel_family == "item") return false;
  if (single) options.kernel_family = "item";
  return true;
}

}  // namespace

std::unique_ptr<const Plan> make_plan(ir::Graph graph, runtime::Device& device, const runtime::BinaryStore& store,
                                      const PlanOptions& options, StartedPlan* started) {
  constexpr int kMostChecks = 50;  // After a failed check, the next plan lacks a kernel of the one before.
  PlanOptions simpler = options;
  for (int failed = 0; failed < kMostChecks;) {
    auto plan = std::make_unique<Plan>();
    try {
      if (StartedPlan* first = std::exchange(started, nullptr)) {
        if (!first->finish(plan)) continue;
        describe_plan(*plan, device, options);
        return plan;
      }
      if (fill_plan(*plan, graph, device, store, simpler)) return plan;
      ++failed;
    } catch (CompilerCrash& crash) {
      // Tuning asks whether this candidate can be built.
      if (!options.choice.empty() || !avoid_crash(*plan, crash, simpler)) throw;
    } catch (const GroupRefused& refused) {
      if (!options.choice.empty() || !shrink_groups(*plan, refused, simpler)) throw;
    }
  }
  fail(ErrorKind::kInternal, "the plan of the " + options.label + " still has a kernel whose check has failed on " +
                                 device.describe() + "\n  see:   the warnings of torch_ocl_compile.checks");
}

}  // namespace ocl::exec
