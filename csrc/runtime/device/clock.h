// csrc/runtime/device/clock.h: converts the times of a device's events to unix time, in which the host's times are given.
#pragma once

#include <cstdint>
#include <optional>

namespace ocl::runtime {

class Device;

/// A time of the device's clock, and the unix time at that moment, which is wrong by at most `uncertainty_ns`.
struct ClockSample {
  int64_t device_ns = 0, unix_ns = 0, uncertainty_ns = 0;
};

/// Takes a sample: runs a few small commands and waits for them. Empty if the device gives no times.
std::optional<ClockSample> sample_clock(Device& device);

/// Converts a device's time to unix time: along the straight line through two samples, or by the difference in one sample.
class DeviceClock {
 public:
  DeviceClock(std::optional<ClockSample> first, ClockSample last);
  int64_t unix_ns(int64_t device_ns) const;
  int64_t uncertainty_ns() const { return uncertainty_ns_; }
  /// Makes all converted times later by `ns`, but at most by the uncertainty. Callers use it so that no command starts before
  /// the host's call that enqueued it.
  void move(int64_t ns);

 private:
  ClockSample from_;
  double drift_ = 0;  // unix nanoseconds gained per nanosecond of the device
  int64_t uncertainty_ns_ = 0;
};

}  // namespace ocl::runtime
