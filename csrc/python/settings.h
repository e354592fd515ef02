// csrc/python/settings.h: the process's cache and options, as Python's config handed them over.
#pragma once

#include <memory>

#include "csrc/cache/kernel_cache.h"
#include "csrc/exec/plan.h"
#include "csrc/python/pch.h"
#include "csrc/runtime/program.h"

namespace ocl::python {

/// Null before config.configure_core().
std::shared_ptr<cache::KernelCache> current_cache();
runtime::BinaryStore binary_store(const std::shared_ptr<cache::KernelCache>& cache);
/// From options of scope "compile", and a label.
exec::PlanOptions plan_options_from(const pybind11::dict& options);

}  // namespace ocl::python
