// csrc/codegen/template_kernel.h: a hand-written kernel with its epilogue.
#pragma once

#include "csrc/codegen/kernel_source.h"

namespace ocl::codegen {

/// A kTemplate group: parameters, generated epilogue macros, kernel file.
KernelSource generate_template(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

}  // namespace ocl::codegen
