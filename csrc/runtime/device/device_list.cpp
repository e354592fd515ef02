// csrc/runtime/device/device_list.cpp: gets the devices from the OpenCL loader and from vendors' libraries.
#include "csrc/runtime/device/device_list.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "csrc/runtime/opencl/cl_bindings.h"
#include "csrc/runtime/opencl/loader.h"
#include "csrc/runtime/opencl/vendor_library.h"
#include "csrc/runtime/opencl/wrong_runtimes.h"
#include "csrc/runtime/probes/caps.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

bool is_right(const ListedDevice& device, DeviceType type) {
  return device.type == type && device.fault.empty() && known_fault(device.platform_name).empty();
}

struct OrderRule {
  const char* reason;
  bool (*takes)(const ListedDevice& device);
};

// The order of devices: those that the first row takes, then those of the next row. The first device is ocl:0, which programs
// get that name no other. So a wrong one comes after all that are right, however slow these are.
constexpr std::array kOrder = {
    OrderRule{"GPUs come first", [](const ListedDevice& d) { return is_right(d, DeviceType::kGpu); }},
    OrderRule{"accelerators come after GPUs", [](const ListedDevice& d) { return is_right(d, DeviceType::kAccelerator); }},
    OrderRule{"CPUs come after GPUs and accelerators", [](const ListedDevice& d) { return is_right(d, DeviceType::kCpu); }},
    OrderRule{"a driver that failed its check comes after those that did not",
              [](const ListedDevice& d) { return known_fault(d.platform_name).empty(); }},
    OrderRule{"runtimes that gave wrong results come last", [](const ListedDevice&) { return true; }},
};

/// Returns why a version, such as "OpenCL 1.1 Mesa 20.3", is too old, or "".
std::string version_fault(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "OpenCL %d.%d", &major, &minor) != 2 || major > 1 || minor >= 2) return "";
  return "has OpenCL " + std::to_string(major) + "." + std::to_string(minor) + ", and 1.2 is needed: left out";
}

void add_devices(cl_platform_id platform, std::vector<ListedDevice>& devices, std::vector<std::string>& problems) {
  const std::string platform_name = platform_text(platform, CL_PLATFORM_NAME);
  // Drivers of OpenCL 1.1 lack functions that would be called to find out more.
  if (const std::string fault = version_fault(platform_text(platform, CL_PLATFORM_VERSION)); !fault.empty()) {
    problems.push_back("platform '" + platform_name + "' " + fault);
    return;
  }
  std::vector<cl::Device> found;  // Stays empty if the platform has no device.
  const cl_int status = cl::Platform(platform).getDevices(CL_DEVICE_TYPE_ALL, &found);
  if (status != CL_SUCCESS && status != CL_DEVICE_NOT_FOUND) {
    problems.push_back("platform '" + platform_name + "': clGetDeviceIDs: " + status_name(status));
    return;
  }
  const size_t before = devices.size();
  for (const cl::Device& each : found) {
    const cl_device_id id = each();
    ListedDevice device;
    device.id = id;
    device.name = device_text(id, CL_DEVICE_NAME);
    device.platform_name = platform_name;
    device.platform_version = platform_text(platform, CL_PLATFORM_VERSION);
    device.driver = device_text(id, CL_DRIVER_VERSION) + ", " + device.platform_version;
    cl_device_type type = 0;
    cl_bool available = CL_FALSE, compiler = CL_FALSE, little_endian = CL_FALSE;
    each.getInfo(CL_DEVICE_TYPE, &type);
    each.getInfo(CL_DEVICE_AVAILABLE, &available);
    each.getInfo(CL_DEVICE_COMPILER_AVAILABLE, &compiler);
    each.getInfo(CL_DEVICE_ENDIAN_LITTLE, &little_endian);
    const std::string where = "device '" + device.label() + "': ";
    if (const std::string fault = version_fault(device_text(id, CL_DEVICE_VERSION)); !fault.empty()) {
      problems.push_back(where + fault);
      continue;
    }
    if (device.name.empty() || !available || !compiler || !little_endian) {
      problems.push_back(where + (device.name.empty() ? "does not answer"
                                  : !available        ? "not available"
                                  : !compiler         ? "has no compiler"
                                                      : "is big-endian"));
      continue;
    }
    device.type = (type & CL_DEVICE_TYPE_GPU)   ? DeviceType::kGpu
                  : (type & CL_DEVICE_TYPE_CPU) ? DeviceType::kCpu
                                                : DeviceType::kAccelerator;
    device.emulator = lower(device.label()).find("emulation") != std::string::npos;
    // The same runtime may be found twice, for example as a system library and in a pip package. The first one is used.
    // Two equal boards of one platform are two devices.
    const auto same = [&](const ListedDevice& other) {
      return other.name == device.name && other.platform_name == device.platform_name &&
             other.platform_version == device.platform_version;
    };
    if (std::any_of(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(before), same)) {
      log_message(LogLevel::kDebug, "runtime", where + "listed twice, by two libraries; the first is used");
      continue;
    }
    devices.push_back(std::move(device));
  }
}

}  // namespace

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

void put_in_order(std::vector<ListedDevice>& devices, const FaultsOf& faults_of) {
  for (ListedDevice& device : devices) {
    if (faults_of) device.fault = faults_of(device);
    device.rank = 0;
    while (!kOrder[device.rank].takes(device)) ++device.rank;
    device.order = kOrder[device.rank].reason + (device.fault.empty() ? "" : ": " + device.fault);
  }
  std::ranges::stable_sort(devices, {}, &ListedDevice::rank);
}

std::vector<ListedDevice> find_devices(const std::string& library, const std::vector<std::string>& vendor_libraries,
                                       std::vector<std::string>& problems) {
  const os::KeepVariables kept({"OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "OPENCL_LAYERS", "OPENCL_LAYER_PATH"});
  if (std::string problem = open_loader(library, vendor_libraries); !problem.empty()) {
    problems.push_back(std::move(problem));
    return {};
  }
  std::vector<cl_platform_id> platforms;
  const auto add = [&](cl_platform_id platform) {
    if (std::find(platforms.begin(), platforms.end(), platform) == platforms.end()) platforms.push_back(platform);
  };
  for (const std::string& path : vendor_libraries)
    for (cl_platform_id platform : vendor_platforms(path, problems)) add(platform);
  std::vector<cl::Platform> found;
  const cl_int status = cl::Platform::get(&found);
  for (const cl::Platform& platform : found) add(platform());
  // -1001 means that the loader knows no platform.
  if (status != CL_SUCCESS && status != -1001) problems.push_back(std::string("clGetPlatformIDs: ") + status_name(status));
  check_listed_runtimes(os::icd_list(), problems);
  std::vector<ListedDevice> devices;
  for (cl_platform_id platform : platforms) add_devices(platform, devices, problems);
  put_in_order(devices, {});
  return devices;
}

}  // namespace ocl::runtime
