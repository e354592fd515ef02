// csrc/runtime/wrong_runtimes.h: OpenCL runtimes that gave wrong results where they were tried.
#pragma once

#include <string>

#include "csrc/runtime/device_info.h"

namespace ocl::runtime {

/// Returns what is known about the runtime of a device; "" if nothing speaks against it.
std::string known_fault(const DeviceInfo& device);

/// Warns about a device that is used for the first time, if its runtime has a known fault.
void warn_of_known_fault(const DeviceInfo& device);

/// Turns the warnings off or on.
void allow_wrong_runtimes(bool allowed) noexcept;

}  // namespace ocl::runtime
