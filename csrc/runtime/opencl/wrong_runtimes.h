// csrc/runtime/opencl/wrong_runtimes.h: OpenCL runtimes that were tried, and those that gave wrong results.
#pragma once

#include <string>

#include "csrc/runtime/opencl/device_info.h"

namespace ocl::runtime {

/// Returns what is known about the runtime with this CL_PLATFORM_NAME; "" if nothing speaks against it.
std::string known_fault(const std::string& platform_name);

/// Returns where a device's runtime was tried, in words. "": nobody has, so its driver is checked before its first use.
std::string tried_where(const DeviceInfo& device);

/// Warns about a device that is used for the first time, if its runtime has a known fault.
void warn_of_known_fault(const DeviceInfo& device);

/// Turns the warnings, and the check of runtimes that nobody has tried, off or on.
void allow_wrong_runtimes(bool allowed) noexcept;
bool wrong_runtimes_allowed() noexcept;

}  // namespace ocl::runtime
