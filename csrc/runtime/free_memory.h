// csrc/runtime/free_memory.h: how much of a device's memory nobody uses, other processes included.
#pragma once

#include <cstdint>

namespace ocl::runtime {

class Device;

/// Bytes. Asked of the system for a device that shares the host's memory, else of the driver's or the vendor's interfaces
/// where there is one. Without any, what this process has not reserved.
int64_t free_memory(Device& device);

}  // namespace ocl::runtime
