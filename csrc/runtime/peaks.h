// csrc/runtime/peaks.h: what a device reaches at most, measured: profiles compare kernels with it.
#pragma once

namespace ocl::runtime {

class Device;

struct Peaks {
  double bytes_per_second = 0;  // of a copy beyond the caches, read and written
  double flops_per_second = 0;  // of fp32 multiply-adds in registers, each counted as two; without tensor cores
};

/// Takes about a tenth of a second and up to 256 MiB of the device. Work of other queues makes the results smaller. Throws
/// BuildError or DeviceError.
Peaks measure_peaks(Device& device);

}  // namespace ocl::runtime
