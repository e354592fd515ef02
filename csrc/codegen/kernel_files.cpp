// csrc/codegen/kernel_files.cpp: looks up an embedded kernel file.
#include "csrc/codegen/kernel_files.h"

#include "csrc/support/error.h"

namespace ocl::codegen {

const char* kernel_file(const std::string& name) {
  for (int i = 0; i < kKernelFileCount; ++i)
    if (name == kKernelFiles[i].name) return kKernelFiles[i].text;
  fail(ErrorKind::kInternal, "no kernel file named '" + name + "'");
}

}  // namespace ocl::codegen
