// csrc/runtime/device/peaks.h: measures the highest rates that a device reaches. Profiles compare kernels with them.
#pragma once

namespace ocl::runtime {

class Device;

struct Peaks {
  double bytes_per_second = 0;  // Bytes that a copy larger than the caches reads and writes.
  double flops_per_second = 0;  // fp32 multiply-adds in registers, without tensor cores. Each counts as two operations.
};

/// Measures the peaks. It takes about a tenth of a second and up to 256 MiB of the device. Work of other queues makes the
/// results smaller. Throws BuildError or DeviceError.
Peaks measure_peaks(Device& device);

}  // namespace ocl::runtime
