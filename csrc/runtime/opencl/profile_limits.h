// csrc/runtime/opencl/profile_limits.h: refuses what the GPU of a device profile could not do, though this device can.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "csrc/runtime/opencl/device_info.h"
#include "csrc/runtime/opencl/kernel_text.h"
#include "csrc/support/error.h"

namespace ocl::runtime {

/// Adds lines to the front of program texts, with which a use of double or half that the profile lacks does not build.
/// BuildError if a text uses functions that OpenCL 1.2 does not have on every device.
std::vector<KernelText> restricted(const Profile& profile, const std::vector<KernelText>& texts);
/// Returns a line for the error of a program that did not build because of `restricted`. "" if that is not the reason.
std::string lacking(const Profile& profile, const std::string& log);
/// Returns the number of work-items that the profile's driver grants to a kernel. A real driver decides by the registers that
/// its compiler needs, which nobody knows here, so a hash of the text decides: `least_granted`, twice or four times as many, or
/// all.
size_t granted_items(const Profile& profile, const std::string& text);
/// Fails if a kernel needs more local memory or more work-items than the profile allows. `blame` is the kind of the error.
void check_kernel(const DeviceInfo& device, cl_kernel kernel, const std::string& name, ErrorKind blame);
/// InternalError if a launch has larger work-groups than the profile allows.
void check_launch(const DeviceInfo& device, const std::string& kernel, int dims, const std::array<size_t, 3>& local);

}  // namespace ocl::runtime
