// csrc/codegen/kernel_files.h: the texts of kernels/*.cl, which are embedded at build time.
#pragma once

#include <string>

namespace ocl::codegen {

struct KernelFile {
  const char* name;  // "gemm/item" for kernels/gemm/item.cl.
  const char* text;
};
extern const KernelFile kKernelFiles[];
extern const int kKernelFileCount;

/// Returns the text of kernels/<name>.cl. InternalError if there is no such file.
const char* kernel_file(const std::string& name);

}  // namespace ocl::codegen
