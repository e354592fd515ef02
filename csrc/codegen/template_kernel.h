// csrc/codegen/template_kernel.h: generates a hand-written kernel with its epilogue.
#pragma once

#include "csrc/codegen/kernel_source.h"
#include "csrc/schedule/schedule.h"

namespace ocl::codegen {

/// Generates a kTemplate group: parameters, epilogue macros, kernel file.
KernelSource generate_template(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

}  // namespace ocl::codegen
