// csrc/runtime/queues/event.h: a point in a queue that can be queried, waited for, and timed on the device's clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "csrc/runtime/queues/queue.h"

namespace ocl::runtime {

/// A point in a queue. It is complete when all work that was enqueued before it is done.
class Event {
 public:
  /// `timed` says whether time_ns() can be called.
  Event(Queue& queue, bool timed);
  /// Returns whether the event is complete. DeviceError if the work before it failed.
  bool complete() const;
  /// Waits until the event is complete. DeviceError if the work before it failed.
  void wait() const;
  /// Waits at most `time`, in which this thread looks again and again and sleeps between. Returns whether the event is
  /// complete. DeviceError if the work before it failed.
  bool wait_for(std::chrono::duration<double> time) const;
  /// Makes later work of `queue` start after this event. The queue may belong to another device. The host does not
  /// wait.
  void block(Queue& queue) const;
  const DeviceInfo& device() const { return device_; }
  bool timed() const { return timed_; }
  cl_event get() const { return handle_.get(); }
  /// Returns the time in ns of the device's clock at which the work before the event was done. Waits for the event, which must
  /// be timed.
  int64_t time_ns() const;

 private:
  const DeviceInfo& device_;
  int stream_;
  bool timed_;
  EventHandle handle_;
};

/// True if the device records the time of a marker. Otherwise a timed event is a fill of a few bytes.
bool markers_have_times(Queue& queue);

}  // namespace ocl::runtime
