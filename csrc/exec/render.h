// csrc/exec/render.h: schedules and kernels without a device.
#pragma once

#include <vector>

#include "csrc/codegen/kernel_source.h"
#include "csrc/schedule/pipeline.h"

namespace ocl::exec {

/// The schedule and kernels of a graph for given caps, made without a device. Tests and `explain` use it.
struct RenderedPlan {
  schedule::Schedule schedule;
  std::vector<codegen::KernelSource> kernels;  // One per group that launches a kernel, in order.
  std::vector<schedule::PassTrace> passes;
};
RenderedPlan render(ir::Graph graph, const Caps& caps, const schedule::Options& options);

}  // namespace ocl::exec
