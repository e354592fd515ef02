// csrc/schedule/families/rows.cpp: combines the rows of kernels.def and operations.def with the families' functions.
#include "csrc/schedule/families/case.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

#define OCL_KERNEL(name, family, level, operation, offer, types, files, arguments) \
  Refused why_not_##offer(const Draft& draft);                                     \
  void offer_##offer(Draft& draft);
#define OCL_FORM OCL_KERNEL
#include "kernels/kernels.def"
#undef OCL_FORM
#undef OCL_KERNEL

#define OCL_OPERATION(name, nodes, cases)                            \
  bool computes_##nodes(const KernelRow& row, const ir::Node& node); \
  std::vector<CheckCase> cases##_cases(const CheckSubject& subject);
#include "kernels/operations.def"
#undef OCL_OPERATION

/// Rows that are only launched by other rows are never asked.
Refused why_not_none(const Draft&) { return "it is launched by another kernel's row"; }
void offer_none(Draft&) {}
bool computes_none(const KernelRow&, const ir::Node&) { return false; }

const std::vector<TemplateRow>& template_rows() {
  static const std::vector<TemplateRow> rows = [] {
#define OCL_KERNEL(name, family, level, operation, offer, types, files, arguments) \
  {KernelId::k_##name, why_not_##offer, offer_##offer},
#define OCL_FORM OCL_KERNEL
    std::vector<TemplateRow> all = {
#include "kernels/kernels.def"
    };
#undef OCL_FORM
#undef OCL_KERNEL
    std::erase_if(all, [](const TemplateRow& row) { return row.make == offer_none; });
    return all;
  }();
  return rows;
}

bool computes(const KernelRow& row, const ir::Node& node) {
  switch (row.operation) {
#define OCL_OPERATION(name, nodes, cases) \
  case KernelOperation::k_##name:         \
    return computes_##nodes(row, node);
#include "kernels/operations.def"
#undef OCL_OPERATION
  }
  return false;
}

/// Returns those of `matrix` that a row uses. ConfigError if it cannot multiply the type with them.
static MatrixInstructions used_by(const KernelRow& row, KernelType type, MatrixInstructions matrix) {
  const bool narrow = matrix == MatrixInstructions::kMma8;
  if (row.level == KernelLevel::k_warp) return narrow ? matrix : MatrixInstructions::kNone;
  if (row.level != KernelLevel::k_subgroup_matrix) return MatrixInstructions::kNone;
  if (matrix == MatrixInstructions::kNone || narrow || (type == KernelType::kFp32 && !matrix_row(matrix).floats))
    fail(ErrorKind::kConfig, std::string(row.name) + " does not multiply " + name(type) + " with these instructions");
  return matrix;
}

std::vector<CheckCase> check_cases(const KernelRow& row, KernelType type, MatrixInstructions matrix, CaseSet set) {
  const CheckSubject subject{row, type, used_by(row, type, matrix), set};
  std::vector<CheckCase> cases;
  switch (row.operation) {
#define OCL_OPERATION(name, nodes, cases_) \
  case KernelOperation::k_##name:          \
    cases = cases_##_cases(subject);       \
    break;
#include "kernels/operations.def"
#undef OCL_OPERATION
  }
  // An offer may have refused what the form needs.
  if (!row.macro.empty())
    std::erase_if(cases, [&](const CheckCase& c) { return std::ranges::count(c.defines, row.macro + " 1") == 0; });
  for (CheckCase& check : cases)
    for (const KernelRow::Checked& checked : row.types)
      if (checked.type == type && check.tolerance == 0) check.tolerance = checked.tolerance;
  return cases;
}

}  // namespace ocl::schedule
