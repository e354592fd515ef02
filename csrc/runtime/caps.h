// csrc/runtime/caps.h: asks a device what it can do. Each answer that is not a plain query has its reason beside it.
#pragma once

#include <string>

#include "csrc/runtime/cl.h"
#include "csrc/support/caps.h"

namespace ocl::runtime {

/// Queries only, except on GPUs, where what extension strings do not tell reliably is asked from the compiler.
Caps probe_caps(cl_device_id device, cl_context context);

std::string device_text(cl_device_id device, cl_device_info what);  // "" when the query fails
std::string platform_text(cl_platform_id platform, cl_platform_info what);

}  // namespace ocl::runtime
