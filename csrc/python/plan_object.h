// csrc/python/plan_object.h: the object that holds a compiled graph in Python.
#pragma once

#include <memory>
#include <vector>

#include "csrc/exec/executor.h"
#include "csrc/exec/plan_options.h"
#include "csrc/python/pch.h"
#include "csrc/torch/plan_runner.h"

namespace ocl::python {

struct PyPlan {
  std::unique_ptr<exec::Executor> executor;
  const exec::Plan& plan() const { return *executor->plan; }
  /// The plan with what describes it. Making it may compile kernels; other Python threads run meanwhile.
  const exec::Plan& whole() const {
    const pybind11::gil_scoped_release release;
    return exec::whole_plan(plan());
  }
  exec::PlanOptions options;
  std::vector<aten::EagerCall> calls;
};

/// Returns calls of a plan: launches of users' kernels and Python functions.
std::vector<aten::EagerCall> eager_calls(const std::vector<pybind11::object>& calls);

/// Returns the strides of each output of a scheduled graph; none if they are symbolic.
std::vector<std::vector<int64_t>> strides_of(const ir::Graph& scheduled);

}  // namespace ocl::python
