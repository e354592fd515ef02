// csrc/runtime/queues/signal.h: an event that the host completes, and functions that run when an event of the device is
// complete.
#pragma once

#include <atomic>
#include <functional>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

struct DeviceInfo;
class Queue;

/// Queues wait for a signal until set() is called. The destructor sets it too.
class Signal {
 public:
  explicit Signal(const DeviceInfo& device);
  ~Signal() { set(); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  void set() noexcept;
  bool is_set() const noexcept { return set_; }
  /// Makes later work of `queue`, a queue of the signal's device, start after set(). The host does not wait.
  void block(Queue& queue) const;
  /// Makes `queue`, a queue without commands, done when the signal is set. Events of the queue are then those of the signal.
  void stand_for(Queue& queue) const;

 private:
  EventHandle event_;
  std::atomic<bool> set_{false};
};

/// True while signals exist that are not set, so that a queue may wait for the host.
bool any_signal_is_open() noexcept;

/// Calls `then` once when the work before `event` is over, with or without an error. The caller is a thread of the driver or of
/// ours, or this thread. `then` must not wait and must not throw.
void when_done(const DeviceInfo& device, cl_event event, std::function<void()> then);

/// Calls `step` again and again in a thread of ours, until it returns true. `step` must not wait and must not throw. Steps that
/// are ready at the same time are called in the order in which they were given.
void repeat_until_true(std::function<bool()> step);

}  // namespace ocl::runtime
