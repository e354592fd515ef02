// csrc/exec/binary_store.h: the kernels in the cache, as the functions through which runtime finds and stores binaries.
#pragma once

#include <memory>

#include "csrc/cache/kernel_cache.h"
#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::exec {

/// Returns functions that use the cache's table of kernels. They keep the cache alive. Without a cache, nothing is kept.
runtime::BinaryStore binary_store(const std::shared_ptr<cache::KernelCache>& cache);

}  // namespace ocl::exec
