// csrc/runtime/probes/caps.h: finds out what a device can do. caps.cpp gives the reason for each answer that is not a plain
// query.
#pragma once

#include <string>

#include "csrc/kernels/caps.h"
#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// A flag for buffers above CL_DEVICE_MAX_MEM_ALLOC_SIZE (CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL, which CL/cl_ext.h lacks), and
/// the build option of programs that use them.
inline constexpr cl_mem_flags kUnrestrictedSize = 1 << 23;
inline constexpr char kUnrestrictedOption[] = "-cl-intel-greater-than-4GB-buffer-required";

/// Finds out a device's caps with queries. On GPUs, small test programs decide where extension strings are unreliable.
Caps probe_caps(cl_device_id device, cl_context context);

std::string device_text(cl_device_id device, cl_device_info what);  // "" if the query fails.
std::string platform_text(cl_platform_id platform, cl_platform_info what);

}  // namespace ocl::runtime
