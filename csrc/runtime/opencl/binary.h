// csrc/runtime/opencl/binary.h: binaries of programs.
#pragma once

#include <string>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// Makes a program from a binary of the same device and driver. Returns a null handle if the driver refuses it.
ProgramHandle load_binary(cl_context context, cl_device_id device, const std::string& options, const std::string& binary);
/// Returns the program's binary, or "" if the driver gives none.
std::string binary_of(cl_program program);

}  // namespace ocl::runtime
