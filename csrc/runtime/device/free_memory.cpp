// csrc/runtime/device/free_memory.cpp: finds the free memory of a device. OpenCL has no query for it, so several sources are
// tried in turn.
#include "csrc/runtime/device/free_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/probes/caps.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

// CL_DEVICE_GLOBAL_FREE_MEMORY_AMD gives two numbers in KiB: the total, and the largest block.
constexpr cl_device_info kFreeMemoryKiB = 0x4039;
// Queries of the extension cl_nv_device_attribute_query.
constexpr cl_device_info kPciBus = 0x4008, kPciSlot = 0x4009, kPciDomain = 0x400A;

std::optional<int64_t> of_host(Device& device) {
  if (!device.caps().is_cpu && !device.caps().unified) return std::nullopt;
  const int64_t bytes = os::available_memory_bytes();
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

std::optional<int64_t> of_driver(Device& device) {
  std::array<size_t, 2> kib{};
  size_t bytes = 0;
  if (clGetDeviceInfo(device.id(), kFreeMemoryKiB, sizeof(kib), kib.data(), &bytes) != CL_SUCCESS || bytes == 0)
    return std::nullopt;
  return static_cast<int64_t>(kib[0]) << 10;
}

/// Returns the PCI address as the management library writes it, "00000000:0B:00.0". "" if the driver does not tell.
std::string pci_address(Device& device) {
  cl_uint bus = 0, slot = 0, domain = 0;
  if (clGetDeviceInfo(device.id(), kPciBus, sizeof(bus), &bus, nullptr) != CL_SUCCESS ||
      clGetDeviceInfo(device.id(), kPciSlot, sizeof(slot), &slot, nullptr) != CL_SUCCESS)
    return "";
  // Older drivers have no query for the domain. It stays 0.
  clGetDeviceInfo(device.id(), kPciDomain, sizeof(domain), &domain, nullptr);
  char text[32];
  std::snprintf(text, sizeof(text), "%08X:%02X:%02X.0", domain, bus, slot >> 3);
  return text;
}

/// NVIDIA's management library (NVML), which comes with the driver.
struct ManagementLibrary {
  struct Memory {
    unsigned long long total, free, used;
  };
  int (*device_by_pci)(const char*, void**) = nullptr;
  int (*memory_info)(void*, Memory*) = nullptr;

  static const ManagementLibrary& instance() {
    static const ManagementLibrary library;
    return library;
  }

 private:
  ManagementLibrary() {
    std::string problem;
    void* library = os::open_library(os::kFileNames.nvidia_management, problem);
    if (!library) return;
    const auto start = reinterpret_cast<int (*)()>(os::library_symbol(library, "nvmlInit_v2"));
    if (!start || start() != 0) return;
    device_by_pci =
        reinterpret_cast<int (*)(const char*, void**)>(os::library_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    memory_info = reinterpret_cast<int (*)(void*, Memory*)>(os::library_symbol(library, "nvmlDeviceGetMemoryInfo"));
  }
};

std::optional<int64_t> of_management_library(Device& device) {
  const std::string address = pci_address(device);
  if (address.empty()) return std::nullopt;
  const ManagementLibrary& library = ManagementLibrary::instance();
  void* handle = nullptr;
  ManagementLibrary::Memory memory{};
  if (!library.device_by_pci || !library.memory_info || library.device_by_pci(address.c_str(), &handle) != 0 ||
      library.memory_info(handle, &memory) != 0)
    return std::nullopt;
  return static_cast<int64_t>(memory.free);
}

}  // namespace

int64_t free_memory(Device& device) {
  for (const auto source : {of_host, of_driver, of_management_library})
    if (const std::optional<int64_t> bytes = source(device)) return std::min(*bytes, device.caps().global_bytes);
  return std::max<int64_t>(device.caps().global_bytes - device.allocator().stats().reserved_bytes.all().current, 0);
}

}  // namespace ocl::runtime
