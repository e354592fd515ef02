// csrc/exec/stored_plan.h: plans that are kept beside the binaries of their kernels, so that a later process need not schedule
// and generate again.
#pragma once

#include <memory>
#include <string>

#include "csrc/exec/plan.h"
#include "csrc/exec/plan_options.h"

namespace ocl::exec {

/// Returns the plan of a graph, as make_plan does. Takes it from `store` if this build of the library has kept it there for
/// this device and these options, and the binaries of all kernels are there too; otherwise makes it, and keeps it. `graph_key`
/// is equal for equal graphs only. A plan from the store can run at once. What describes it is made when it is asked for
/// (whole_plan). The store must be trusted: a plan decides where kernels write.
std::unique_ptr<const Plan> find_or_make_plan(const ir::Graph& graph, const std::string& graph_key, runtime::Device& device,
                                              const runtime::BinaryStore& store, const PlanOptions& options);
/// Keeps a plan that make_plan has made, if the store has the binaries of its kernels. Plans with eager calls, and plans that
/// are dumped, verified or watched, are not kept.
void keep_plan(const Plan& plan, const std::string& graph_key, const runtime::BinaryStore& store, const PlanOptions& options);

}  // namespace ocl::exec
