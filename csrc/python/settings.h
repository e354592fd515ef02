// csrc/python/settings.h: the process's cache and options, as Python's config handed them over.
#pragma once

#include <memory>
#include <string>

#include "csrc/cache/kernel_cache.h"
#include "csrc/exec/plan.h"
#include "csrc/python/pch.h"
#include "csrc/runtime/program.h"

namespace ocl::python {

/// The cache, and where dumps and failed kernels go. Threads that compile hold the cache that they began with.
struct Settings {
  std::shared_ptr<cache::KernelCache> cache;  // null before config.configure_core()
  std::string failed_dir, dump_dir;
};
Settings settings();

/// The cache's table of kernels, as runtime asks for it.
runtime::BinaryStore binary_store(const std::shared_ptr<cache::KernelCache>& cache);

/// From options of scope "compile", and a label.
exec::PlanOptions plan_options_from(const pybind11::dict& options);

void bind_cache(pybind11::module_& exec);

}  // namespace ocl::python
