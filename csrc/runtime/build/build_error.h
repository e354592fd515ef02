// csrc/runtime/build/build_error.h: the error for a kernel that does not build.
#pragma once

#include <string>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::runtime {

/// Saves source and log as raise_build_error does, and returns its message.
std::string build_error_message(const Device& device, const KernelText& text, cl_int status, const std::string& log,
                                const std::string& failed_dir);
/// Throws kBuild. Saves source and log in `failed_dir`/<kernel>/, unless `failed_dir` is "".
[[noreturn]] void raise_build_error(const Device& device, const KernelText& text, cl_int status, const std::string& log,
                                    const std::string& failed_dir);

}  // namespace ocl::runtime
