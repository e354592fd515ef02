// csrc/python/settings.h: the cache and options of the process, which Python's config sets.
#pragma once

#include <memory>
#include <string>

#include "csrc/cache/kernel_cache.h"
#include "csrc/exec/binary_store.h"
#include "csrc/exec/plan_options.h"
#include "csrc/python/pch.h"
#include "csrc/runtime/build/program.h"

namespace ocl::python {

/// The cache, and the folders for dumps and failed kernels. A thread that compiles keeps the cache that it got when it began.
struct Settings {
  std::shared_ptr<cache::KernelCache> cache;  // Null before config.configure_core().
  std::string failed_dir, dump_dir;
};
Settings settings();

/// Makes plan options from a label and from Python's options of scope "compile".
exec::PlanOptions plan_options_from(const pybind11::dict& options);

void bind_cache(pybind11::module_& exec);
void bind_check(pybind11::module_& exec);
void bind_started(pybind11::module_& exec);
void bind_user_kernels(pybind11::module_& exec);

}  // namespace ocl::python
