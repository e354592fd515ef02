// csrc/checks/check_text.cpp: assembles the program of a check case.
#include "csrc/checks/check_text.h"

#include <algorithm>

#include "csrc/codegen/kernel_files.h"

namespace ocl::checks {
namespace {

/// Returns the epilogue macros of a kernel that stores numbers of 32 bits with the strides of a case.
std::string stores_of(const CheckCase& check) {
  const std::string type = kernel_row(check.kernel).operation == KernelOperation::k_sort ? "int" : "float";
  const std::string value = std::ranges::count(check.defines, "IN_INT8 1") > 0 ? "convert_float16(acc)" : "acc";
  std::string names, place, parameters, passed, stores;
  for (size_t d = 0; d < check.strides.size(); ++d) {
    const std::string name = "i" + std::to_string(d);
    names += ", " + name;
    place += " + (ulong)(" + name + ") * " + std::to_string(check.strides[d]);
  }
  for (size_t output = 0; output < check.written().size(); ++output) {
    const std::string number = output == 0 ? "" : std::to_string(output), out = "out" + std::to_string(output),
                      offset = out + "_offset";
    parameters += ", __global " + type + " *" + out + ", const ulong " + offset;
    passed += ", " + out + ", " + offset;
    stores += "#define STORE" + number + "(acc" + names + ") (" + out + "[" + offset + place + "] = (acc))\n";
    stores += "#define STORE" + number + "V(acc" + names + ") OCL_CAT(vstore, VW)(" + value + ", (size_t)0, " + out + " + (" +
              offset + place + "))\n";
  }
  return "#define EPILOGUE_PARAMS " + parameters + "\n#define EPILOGUE_FUNCTION_PARAMS EPILOGUE_PARAMS\n" +
         "#define EPILOGUE_PASS " + passed + "\n" + stores;
}

}  // namespace

std::string text_of(const CheckCase& check) {
  // Plans store whole tiles with STOREA, which needs alignment. Here the results may be unaligned, so STOREA becomes
  // STOREV. WAIT_TRIES limits how long the kernel waits for a barrier, so that it always ends.
  std::string text = "#define KERNEL_NAME checked_kernel\n#define WAIT_TRIES 100000\n#define STOREA STOREV\n";
  text += "#define KERNEL_PARAMETERS " + kernel_row(check.kernel).parameters(check.given) + "\n";
  for (const std::string& macro : check.defines) text += "#define " + macro + "\n";
  text += "#ifndef STORES_ALIGNED\n#define STORES_ALIGNED 1\n#endif\n";
  if (!check.strides.empty()) text += stores_of(check);
  text += codegen::kernel_file("base/types");
  for (const char* file : kernel_row(check.kernel).files) text += std::string("\n") + codegen::kernel_file(file);
  return text;
}

}  // namespace ocl::checks
