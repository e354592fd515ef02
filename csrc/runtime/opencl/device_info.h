// csrc/runtime/opencl/device_info.h: what is known of an OpenCL device, as a plain struct. Queues and allocators get only this.
#pragma once

#include <string>

#include "csrc/kernels/profile.h"
#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

struct DeviceInfo {
  int index = 0;
  std::string name, platform_name;   // CL_DEVICE_NAME, CL_PLATFORM_NAME
  std::string driver;                // Driver and platform version, part of cache keys.
  std::string build_options;         // Options for clBuildProgram. They are part of cache keys.
  Caps caps;                         // What the device can do, restricted to the profile.
  const Profile* profile = nullptr;  // The device profile that the device takes on. nullptr: none.
  std::string order;                 // Why the device has its place among the others.
  bool is_cpu = true;                // The device is a CPU, whatever its profile.
  cl_device_id id = nullptr;
  ContextHandle context;
  QueueHandle own_queue;  // The queue of stream 0, if the program gave one (own_objects.h).

  std::string describe() const;  // "'name' (platform, driver, profile)" for messages.
};

}  // namespace ocl::runtime
