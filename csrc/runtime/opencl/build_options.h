// csrc/runtime/opencl/build_options.h: builds programs with the options that the driver accepts.
#pragma once

#include <string>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// Builds a program with `options`, and again without those that the driver refuses, if there are any. A small kernel finds out
/// which, once in a process. Returns the status of clBuildProgram.
cl_int build_with_options(cl_context context, cl_device_id device, cl_program program, const std::string& options);

}  // namespace ocl::runtime
