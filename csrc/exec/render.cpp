// csrc/exec/render.cpp: see render.h.
#include "csrc/exec/render.h"

#include <utility>

#include "csrc/codegen/generate.h"

namespace ocl::exec {

RenderedPlan render(ir::Graph graph, const Caps& caps, const schedule::Options& options) {
  RenderedPlan rendered;
  schedule::Options traced = options;
  traced.trace = &rendered.passes;
  rendered.schedule = schedule::make_schedule(std::move(graph), caps, traced);
  for (const schedule::Group& group : rendered.schedule.groups)
    if (group.kind != schedule::GroupKind::kCall) rendered.kernels.push_back(codegen::generate(rendered.schedule, group, caps));
  return rendered;
}

}  // namespace ocl::exec
