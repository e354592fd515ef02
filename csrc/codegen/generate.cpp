// csrc/codegen/generate.cpp: selects the code that prints a group by its kind and strategy.
#include "csrc/codegen/generate.h"

#include "csrc/codegen/batch_kernel.h"
#include "csrc/codegen/pointwise.h"
#include "csrc/codegen/reduction.h"
#include "csrc/codegen/template_kernel.h"
#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using schedule::Group;
using schedule::GroupKind;
using schedule::LoopStrategy;

namespace {

/// Returns "pointwise", or the name of the group's first reduction.
std::string kind_of(const schedule::Schedule& schedule, const Group& group) {
  for (const ir::NodeId node : group.nodes()) {
    const ir::Node& n = schedule.graph.nodes[node];
    if (n.kind == ir::NodeKind::kScan) return std::string("scan_") + ir::facts(n.reduction).name;
    if (n.kind == ir::NodeKind::kReduce) return ir::facts(n.reduction).name;
  }
  return "pointwise";
}

KernelSource generate_loops(const schedule::Schedule& schedule, const Group& group, const Caps& caps) {
  Nest nest(schedule, group, caps);
  std::array<size_t, 3> local{static_cast<size_t>(nest.kernel.dialect().items), 1, 1};
  Grid grid;
  const bool elements = group.strategy == LoopStrategy::kPointwise || group.strategy == LoopStrategy::kSequential;
  if (caps.is_cpu) {
    OCL_ASSERT(group.strategy != LoopStrategy::kColumn, "kColumn is a strategy of GPUs");
    grid = elements ? write_elements_cpu(nest) : write_rows_cpu(nest);
  } else {
    grid = elements ? write_elements_gpu(nest) : write_rows_gpu(nest, &local);
  }
  for (ir::IndexExpr& groups : grid) groups = ir::simplify(groups, nest.ranges);
  const std::string name = kind_of(schedule, group);
  KernelSource source = nest.kernel.finish(name, "", nest.body.writer(), grid, local);
  source.kind = name == "pointwise" ? "pointwise" : "reduction";
  return source;
}

}  // namespace

KernelSource generate(const schedule::Schedule& schedule, const Group& group, const Caps& caps) {
  switch (group.kind) {
    case GroupKind::kLoops:
      return generate_loops(schedule, group, caps);
    case GroupKind::kTemplate:
      return generate_template(schedule, group, caps);
    case GroupKind::kBatch:
      return generate_batch(schedule, group, caps);
    case GroupKind::kCall:
      break;
  }
  fail(ErrorKind::kInternal, "an eager op has no kernel");
}

}  // namespace ocl::codegen
