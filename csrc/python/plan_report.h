// csrc/python/plan_report.h: gives the report a plan as dicts: what each launch computes, what was fused, why no more was
// fused, and how memory is used.
#pragma once

#include "csrc/exec/executor.h"
#include "csrc/python/pch.h"

namespace ocl::python {

/// Returns the dicts. Sizes and bytes are those of the last call; None where they are symbolic and the plan has not run.
pybind11::dict plan_report(exec::Executor& executor);

}  // namespace ocl::python
