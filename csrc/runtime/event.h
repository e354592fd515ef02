// csrc/runtime/event.h: a point in a queue that can be asked, waited for, and timed on the device's clock.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Device;
class Queue;

/// Complete when everything enqueued before it is.
class Event {
 public:
  /// `timed`: it has a time.
  Event(Queue& queue, bool timed);
  /// Raises DeviceError if the work before it failed.
  bool complete() const;
  /// Raises as `complete`.
  void wait() const;
  /// Work that `queue` gets from now on starts after this event, which may be one of another device. Nothing waits here.
  void block(Queue& queue) const;
  Device& device() const { return device_; }
  bool timed() const { return timed_; }
  /// When the device was done with the work before it, in ns of the device's clock. Waits. Only for a timed event.
  int64_t time_ns() const;

 private:
  Device& device_;
  int stream_;
  bool timed_;
  EventHandle handle_;
};

/// Whether the execution status of an event says that the work before it is done. Raises DeviceError with `where` if it failed.
bool completed(cl_int execution_status, const std::string& where);

/// Whether the work is over, with or without an error.
bool is_done(cl_event event) noexcept;

/// Whether the device notes the time of a marker; where it does not, a timed event is a fill of a few bytes.
bool markers_have_times(Queue& queue);

}  // namespace ocl::runtime
