// csrc/schedule/templates/choosers.h: declares the choosers that kernels/kernels.def names. template.h describes what a
// chooser does.
#pragma once

#include "csrc/schedule/template.h"

namespace ocl::schedule {

#define OCL_KERNEL(name, family, level, operation, base, chooser, types, files, arguments) \
  bool choose_##chooser(TemplateContext& context, TemplateLaunch& launch);
#include "kernels/kernels.def"
#undef OCL_KERNEL

}  // namespace ocl::schedule
