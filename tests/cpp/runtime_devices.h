// tests/cpp/runtime_devices.h: the devices that the runtime's tests use: those that TORCH_OCL_DEVICES selects, or all.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "csrc/runtime/device/device.h"

/// Returns folders or libraries of OpenCL runtimes that the system does not list: OCL_TEST_RUNTIMES, or else those of
/// the active virtual environment.
inline std::vector<std::string> test_vendor_libraries() {
  if (const char* paths = std::getenv("OCL_TEST_RUNTIMES")) {
    std::vector<std::string> list;
    std::string text = paths;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(':', begin), text.size());
      if (end > begin) list.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return list;
  }
  const char* environment = std::getenv("VIRTUAL_ENV");
  return environment ? std::vector<std::string>{std::string(environment) + "/etc/OpenCL/vendors"} : std::vector<std::string>{};
}

inline void configure_test_devices() {
  const char* selection = std::getenv("TORCH_OCL_DEVICES");
  ocl::runtime::configure_devices(selection ? selection : "", test_vendor_libraries());
}

/// Runs `body` for each device, and reports it if there is none.
inline void for_each_device(const std::function<void(ocl::runtime::Device&)>& body) {
  configure_test_devices();
  const int count = ocl::runtime::Device::count();
  if (count == 0) MESSAGE("no OpenCL device: nothing was tested");
  for (int i = 0; i < count; ++i) {
    ocl::runtime::Device& device = ocl::runtime::Device::get(i);
    CAPTURE(device.describe());
    body(device);
  }
}
