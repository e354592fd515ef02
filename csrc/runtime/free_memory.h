// csrc/runtime/free_memory.h: the memory of a device that no process uses.
#pragma once

#include <cstdint>

namespace ocl::runtime {

class Device;

/// Free memory in bytes. For a device that shares the host's memory, the system tells. For others, the driver's or the
/// vendor's interface tells. If there is none, it is the memory that this process has not reserved.
int64_t free_memory(Device& device);

}  // namespace ocl::runtime
