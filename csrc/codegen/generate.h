// csrc/codegen/generate.h: the kernel of a group.
#pragma once

#include "csrc/codegen/kernel_source.h"
#include "csrc/schedule/schedule.h"

namespace ocl::codegen {

/// Generates the kernel of a group. InternalError that names the group if that is impossible.
KernelSource generate(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

}  // namespace ocl::codegen
