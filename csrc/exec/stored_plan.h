// csrc/exec/stored_plan.h: plans that are kept beside the binaries of their kernels, so that a later process need not schedule
// and generate again.
#pragma once

#include <memory>
#include <string>

#include "csrc/exec/plan.h"
#include "csrc/exec/plan_options.h"

namespace ocl::exec {

/// Returns the plan of a graph without calls, as make_plan does. Takes it from `store` if this build of the library has kept it
/// there for this device and the binaries of all kernels are there too; otherwise makes it, and keeps it if the store has
/// these binaries. `graph_key` is equal for equal graphs only. A plan from the store has no nodes, no groups and no texts of
/// kernels, so it can run, but neither be explained nor recorded nor checked. The store must be trusted: a plan decides where
/// kernels write.
std::unique_ptr<const Plan> find_or_make_plan(const ir::Graph& graph, const std::string& graph_key, runtime::Device& device,
                                              const runtime::BinaryStore& store, const PlanOptions& options);

}  // namespace ocl::exec
