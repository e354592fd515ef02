// csrc/exec/fill_plan.h: turns a graph into a plan. Only here do schedule, codegen, cache and runtime meet.
#pragma once

#include "csrc/exec/plan.h"
#include "csrc/exec/plan_options.h"

namespace ocl::exec {

/// Fills an empty plan: schedules the graph, generates and builds its kernels, and checks those of tensor cores meanwhile.
/// Returns false if one of these failed its check; another plan does without it. If it throws CompilerCrash, the plan has the
/// schedule and the launches. Call make_plan (make_plan.h), which handles both.
bool fill_plan(Plan& plan, ir::Graph graph, runtime::Device& device, const runtime::BinaryStore& store,
               const PlanOptions& options);
/// The two halves of fill_plan. build_plan needs no more than what schedule_plan has filled in, and may run in another thread.
void schedule_plan(Plan& plan, ir::Graph graph, runtime::Device& device, const PlanOptions& options);
bool build_plan(Plan& plan, runtime::Device& device, const runtime::BinaryStore& store, const PlanOptions& options);
/// Returns the plan of a graph for given caps, without a device and without programs. Tests use it.
std::unique_ptr<const Plan> render(ir::Graph graph, const Caps& caps, const PlanOptions& options);

/// Sets the device of a plan, and its names in messages.
void describe_plan(Plan& plan, runtime::Device& device, const PlanOptions& options);

/// Returns the device's caps, restricted to the kernels that the options allow and that plans use on it. ConfigError for an
/// unknown name in `disable`.
Caps caps_for(const runtime::Device& device, const PlanOptions& options);

}  // namespace ocl::exec
