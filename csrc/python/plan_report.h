// csrc/python/plan_report.h: a plan as dicts for the report: what each launch computes, what was fused and why no more, memory.
#pragma once

#include "csrc/exec/plan.h"
#include "csrc/python/pch.h"

namespace ocl::python {

/// Sizes and bytes are those of the last call; None where they are symbolic and the plan has not run.
pybind11::dict plan_report(exec::Plan& plan);

}  // namespace ocl::python
