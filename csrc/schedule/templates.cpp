// csrc/schedule/templates.cpp: combines the rows of kernels/kernels.def with their choosers.
#include <algorithm>

#include "csrc/schedule/templates/choosers.h"

namespace ocl::schedule {

bool choose_none(TemplateContext&, TemplateLaunch&) { return false; }

const std::vector<TemplateRow>& template_rows() {
  static const std::vector<TemplateRow> rows = [] {
#define OCL_KERNEL(name, family, level, operation, base, chooser, types, files, arguments) \
  {KernelId::k_##name, choose_##chooser},
    std::vector<TemplateRow> all = {
#include "kernels/kernels.def"
    };
#undef OCL_KERNEL
    std::erase_if(all, [](const TemplateRow& row) { return row.choose == choose_none; });
    return all;
  }();
  return rows;
}

}  // namespace ocl::schedule
