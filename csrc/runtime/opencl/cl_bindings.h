// csrc/runtime/opencl/cl_bindings.h: OpenCL's C++ bindings, for queries. Only .cpp files of this folder include it, because it
// adds a second to the time of a compilation. Objects are owned by the handles of cl.h instead of the bindings'
// classes: the handles release nothing in a forked child or at the end of the process.
#pragma once

#include "csrc/runtime/opencl/cl.h"

#define CL_HPP_TARGET_OPENCL_VERSION 120
#define CL_HPP_MINIMUM_OPENCL_VERSION 120
#include <CL/opencl.hpp>
