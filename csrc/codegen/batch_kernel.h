// csrc/codegen/batch_kernel.h: several independent groups in one launch.
#pragma once

#include "csrc/codegen/kernel_source.h"
#include "csrc/schedule/schedule.h"

namespace ocl::codegen {

/// Prints the kernel of a kBatch group. Each member owns a range of work-groups of a one-dimensional grid.
KernelSource generate_batch(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

}  // namespace ocl::codegen
