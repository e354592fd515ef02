// csrc/exec/make_plan.h: makes a plan, also where the driver's compiler ends on a kernel.
#pragma once

#include <memory>

#include "csrc/exec/plan.h"
#include "csrc/exec/plan_options.h"
#include "csrc/exec/started_plan.h"

namespace ocl::exec {

/// Schedules the graph, generates and builds its kernels. Throws the core's errors. An error of a pass or a kernel
/// names the aten ops.
/// If the compiler ends on a kernel, also without optimisation, the plan is made again with simpler kernels in its place, and a
/// warning: first a kernel without vectors for each node, then no hand-written kernel. If nothing simpler is left,
/// CompilerCrash is thrown, with the ops of that kernel.
/// If the driver grants a kernel fewer work-items than it has, the plan is made again with smaller work-groups for its ops, and
/// last with kernels of single work-items.
/// `started`: the first plan to try. It was begun for this graph with equal options.
std::unique_ptr<const Plan> make_plan(ir::Graph graph, runtime::Device& device, const runtime::BinaryStore& store,
                                      const PlanOptions& options, StartedPlan* started = nullptr);

}  // namespace ocl::exec
