// csrc/runtime/opencl/device_info.cpp: see device_info.h.
#include "csrc/runtime/opencl/device_info.h"

namespace ocl::runtime {

std::string DeviceInfo::describe() const {
  return "'" + name + "' (" + platform_name + ", driver " + driver.substr(0, driver.find(", OpenCL")) +
         (profile ? std::string(", profile ") + profile->name : "") + ")";
}

}  // namespace ocl::runtime
