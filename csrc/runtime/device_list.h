// csrc/runtime/device_list.h: finds the OpenCL devices of all platforms without creating a context.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

struct ListedDevice {
  cl_device_id id = nullptr;
  std::string name, platform_name, driver, platform_version;
  int rank = 0;           // 0: GPU, 1: accelerator, 2: CPU.
  bool emulator = false;  // An emulator runs kernels slowly, for checking. It is listed only if it is selected by name.
  std::string label() const { return platform_name + " / " + name; }
};

/// Returns all usable devices: GPUs, then accelerators, then CPUs. `library` is where OpenCL's functions come from (loader.h),
/// `vendor_libraries` are runtimes that the system's list may lack. A platform or device that fails adds a line to `problems`.
std::vector<ListedDevice> find_devices(const std::string& library, const std::vector<std::string>& vendor_libraries,
                                       std::vector<std::string>& problems);

std::string lower(std::string text);

}  // namespace ocl::runtime
