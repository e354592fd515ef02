// csrc/codegen/kernel_files.h: the texts of kernels/*.cl, embedded at build time.
#pragma once

#include <string>

namespace ocl::codegen {

struct KernelFile {
  const char* name;  // "gemm/item" for kernels/gemm/item.cl
  const char* text;
};
extern const KernelFile kKernelFiles[];
extern const int kKernelFileCount;

/// Text of kernels/<name>.cl. Throws InternalError when there is none.
const char* kernel_file(const std::string& name);

}  // namespace ocl::codegen
