// csrc/runtime/free_memory.h: the memory of a device that no process uses.
#pragma once

#include <cstdint>

namespace ocl::runtime {

class Device;

/// Returns the free memory in bytes. For a device that shares the host's memory, the operating system tells. For other devices,
/// the driver or the vendor's library tells. If neither does, returns the memory that this process has not reserved.
int64_t free_memory(Device& device);

}  // namespace ocl::runtime
