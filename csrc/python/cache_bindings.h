// csrc/python/cache_bindings.h: the process's kernel cache, and where dumps and failed kernels go.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "csrc/cache/kernel_cache.h"
#include "csrc/runtime/program.h"

namespace ocl::python {

/// As Python's config set them last. Threads that compile hold the cache that they began with.
struct Settings {
  std::shared_ptr<cache::KernelCache> cache;
  std::string failed_dir, dump_dir;
};
Settings settings();

/// The cache's table of kernels, as runtime asks for it.
runtime::BinaryStore binary_store(const std::shared_ptr<cache::KernelCache>& cache);

void bind_cache(pybind11::module_& exec);

}  // namespace ocl::python
