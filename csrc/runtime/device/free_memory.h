// csrc/runtime/device/free_memory.h: the memory of a device that no process uses.
#pragma once

#include <cstdint>

namespace ocl::runtime {

class Device;

/// Returns the free memory in bytes. For a device that shares the host's memory, the operating system reports it. For
/// other devices, the driver or the vendor's library does. If neither reports it, returns the memory that this process
/// has not reserved.
int64_t free_memory(Device& device);

}  // namespace ocl::runtime
