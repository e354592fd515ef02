// csrc/checks/check_text.cpp: assembles the program of a check case.
#include "csrc/checks/check_text.h"

#include "csrc/codegen/kernel_files.h"

namespace ocl::checks {

std::string text_of(const CheckCase& check) {
  // Plans store whole tiles with STOREA, which needs alignment. Here the results may be unaligned, so STOREA becomes
  // STOREV. WAIT_TRIES limits how long the kernel waits for a barrier, so that it always ends.
  std::string text = "#define KERNEL_NAME checked_kernel\n#define WAIT_TRIES 100000\n#define STOREA STOREV\n";
  text += "#define KERNEL_PARAMETERS " + kernel_row(check.kernel).parameters(check.given) + "\n";
  for (const std::string& macro : check.defines) text += "#define " + macro + "\n";
  text += "#ifndef STORES_ALIGNED\n#define STORES_ALIGNED 1\n#endif\n";
  text += codegen::kernel_file("base/types");
  for (const char* file : kernel_row(check.kernel).files) text += std::string("\n") + codegen::kernel_file(file);
  return text;
}

}  // namespace ocl::checks
