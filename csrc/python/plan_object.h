// csrc/python/plan_object.h: the object that holds a compiled graph in Python.
#pragma once

#include <memory>
#include <vector>

#include "csrc/exec/executor.h"
#include "csrc/torch/plan_runner.h"

namespace ocl::python {

struct PyPlan {
  std::unique_ptr<exec::Executor> executor;
  const exec::Plan& plan() const { return *executor->plan; }
  std::vector<aten::EagerCall> calls;
};

}  // namespace ocl::python
