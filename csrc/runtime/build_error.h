// csrc/runtime/build_error.h: what a user is told about a kernel that does not build.
#pragma once

#include <string>

#include "csrc/runtime/device.h"
#include "csrc/runtime/program.h"

namespace ocl::runtime {

/// Throws kBuild. Source and log are saved under `failed_dir`/<kernel>/, unless it is "".
[[noreturn]] void raise_build_error(const Device& device, const KernelText& text, cl_int status, const std::string& log,
                                    const std::string& failed_dir);

}  // namespace ocl::runtime
