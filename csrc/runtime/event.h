// csrc/runtime/event.h: a point in a queue that can be asked, waited for, and timed on the host's clock.
#pragma once

#include <chrono>
#include <memory>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Queue;

/// Complete when everything enqueued before it is.
class Event {
 public:
  /// `timed` notes when it completes: on the host, a callback's latency later (markers carry no device time on all drivers).
  Event(Queue& queue, bool timed);
  bool complete() const;
  void wait() const;  // raises if the work failed
  cl_event get() const { return marker_.get(); }
  bool timed() const { return completion_ != nullptr; }
  std::chrono::steady_clock::time_point completion_time() const;  // waits; only if timed

 private:
  struct Completion;
  EventHandle marker_;
  std::shared_ptr<Completion> completion_;  // the callback holds it too: it outlives a destroyed event
};

bool is_complete(cl_event event);

}  // namespace ocl::runtime
