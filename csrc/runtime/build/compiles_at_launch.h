// csrc/runtime/build/compiles_at_launch.h: finds out whether a runtime compiles a kernel only at its first launch.
#pragma once

#include <string>

#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::runtime {

class Device;

/// True for a runtime that compiles a kernel at its first launch, such as PoCL. If such a runtime is asked for a binary before
/// the launch, it also compiles the kernel in a general form that the launch does not use. That takes twice the time and saves
/// nothing. The runtime has a cache of its own, so no binaries are kept for it. The first call for a device compiles a small
/// kernel to find out, and stores the answer under a key that begins with `prefix`. Thread-safe.
bool compiles_at_launch(Device& device, const BinaryStore& store, const std::string& prefix);

/// False if the device is known to compile at the first launch, so that its binaries are not kept.
bool keeps_binaries(const Device& device);

}  // namespace ocl::runtime
