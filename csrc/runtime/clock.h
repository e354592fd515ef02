// csrc/runtime/clock.h: the times of a device's events as unix time, so that they fit between those of the host.
#pragma once

#include <cstdint>
#include <optional>

namespace ocl::runtime {

class Device;

/// What the clock of a device shows when the host's shows `unix_ns`; the truth is at most `uncertainty_ns` away.
struct ClockSample {
  int64_t device_ns = 0, unix_ns = 0, uncertainty_ns = 0;
};

/// Runs a few small commands and waits for them. Empty if the device gives no times.
std::optional<ClockSample> sample_clock(Device& device);

/// Unix time from a device's time: a straight line through two samples, or one sample's difference.
class DeviceClock {
 public:
  DeviceClock(std::optional<ClockSample> first, ClockSample last);
  int64_t unix_ns(int64_t device_ns) const;
  int64_t uncertainty_ns() const { return uncertainty_ns_; }
  /// Moves the clock ahead, by what it is in doubt at most: a command starts after the host's call that enqueued it.
  void move(int64_t ns);

 private:
  ClockSample from_;
  double drift_ = 0;  // unix nanoseconds gained per nanosecond of the device
  int64_t uncertainty_ns_ = 0;
};

}  // namespace ocl::runtime
