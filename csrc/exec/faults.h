// csrc/exec/faults.h: faults that tests plant in the texts of kernels: they do not build, or compute or store wrongly.
#pragma once

#include <string>
#include <vector>

#include "csrc/codegen/kernel_source.h"

namespace ocl::exec {

struct Fault {
  std::string kernel;  // Name of the kernel. "": each kernel.
  std::string part;    // Every occurrence of this text is replaced. "": `by` is added to the end.
  std::string by;
};

/// Replaces the faults of all plans that are made from now on. Thread-safe.
void plant(std::vector<Fault> faults);
bool are_planted();
/// Changes the text of a kernel as the planted faults say.
void apply_faults(codegen::KernelSource& source);

}  // namespace ocl::exec
