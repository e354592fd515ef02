// csrc/python/plan_object.h: a compiled graph as Python holds it.
#pragma once

#include <memory>
#include <vector>

#include "csrc/exec/plan.h"
#include "csrc/torch/plan_runner.h"

namespace ocl::python {

struct PyPlan {
  std::unique_ptr<exec::Plan> plan;
  std::vector<aten::EagerCall> calls;
};

}  // namespace ocl::python
