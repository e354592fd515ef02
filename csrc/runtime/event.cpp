// csrc/runtime/event.cpp: see event.h.
#include "csrc/runtime/event.h"

#include <condition_variable>
#include <mutex>

#include "csrc/runtime/device.h"
#include "csrc/runtime/queue.h"

namespace ocl::runtime {

struct Event::Completion {
  std::mutex mutex;
  std::condition_variable done;
  bool complete = false;
  std::chrono::steady_clock::time_point time;

  static void CL_CALLBACK on_complete(cl_event, cl_int, void* data) {
    const std::unique_ptr<std::shared_ptr<Completion>> completion(static_cast<std::shared_ptr<Completion>*>(data));
    const std::lock_guard lock((*completion)->mutex);
    (*completion)->time = std::chrono::steady_clock::now();
    (*completion)->complete = true;
    (*completion)->done.notify_all();
  }
};

Event::Event(Queue& queue, bool timed) : marker_(queue.marker()) {
  if (timed) {
    completion_ = std::make_shared<Completion>();
    auto data = std::make_unique<std::shared_ptr<Completion>>(completion_);
    OCL_CHECK(clSetEventCallback(marker_.get(), CL_COMPLETE, &Completion::on_complete, data.get()), queue.device().describe());
    data.release();  // now the callback's
  }
  queue.flush();
}

bool Event::complete() const { return is_complete(marker_.get()); }

void Event::wait() const {
  const cl_event event = marker_.get();
  OCL_CHECK(clWaitForEvents(1, &event), "an event");
}

std::chrono::steady_clock::time_point Event::completion_time() const {
  OCL_ASSERT(completion_ != nullptr, "only a timed event has a time");
  std::unique_lock lock(completion_->mutex);
  completion_->done.wait(lock, [&] { return completion_->complete; });
  return completion_->time;
}

bool is_complete(cl_event event) {
  cl_int state = CL_QUEUED;
  OCL_CHECK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr), "an event");
  return state <= CL_COMPLETE;  // negative: failed
}

}  // namespace ocl::runtime
