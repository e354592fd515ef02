// csrc/runtime/device/device_list.h: finds the OpenCL devices of all platforms without creating a context.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

enum class DeviceType : uint8_t { kGpu, kAccelerator, kCpu };

struct ListedDevice {
  cl_device_id id = nullptr;
  std::string name, platform_name, driver, platform_version;
  DeviceType type = DeviceType::kCpu;
  size_t rank = 0;        // Devices with a lower rank come first.
  std::string order;      // Why the device has its place, as a sentence.
  std::string fault;      // What an earlier check of its driver found wrong.
  bool emulator = false;  // An emulator runs kernels slowly, for checking. It is listed only if it is selected by name.
  std::string label() const { return platform_name + " / " + name; }
};

/// Returns all usable devices in the order of kOrder (device_list.cpp). `library` is where OpenCL's functions come from
/// (loader.h), `vendor_libraries` are runtimes that the system's list may lack. A platform or device that fails adds a line to
/// `problems`.
std::vector<ListedDevice> find_devices(const std::string& library, const std::vector<std::string>& vendor_libraries,
                                       std::vector<std::string>& problems);

/// Returns what an earlier check of a device's driver found wrong; "" if it is right or was never checked.
using FaultsOf = std::function<std::string(const ListedDevice&)>;
/// Puts devices in the order of kOrder. `faults_of` may be empty.
void put_in_order(std::vector<ListedDevice>& devices, const FaultsOf& faults_of);

std::string lower(std::string text);

}  // namespace ocl::runtime
