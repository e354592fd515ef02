// csrc/runtime/signal.cpp: a user event of OpenCL, and callbacks of events; see signal.h.
#include "csrc/runtime/signal.h"

#include <memory>
#include <utility>

#include "csrc/runtime/device.h"
#include "csrc/runtime/queue.h"

namespace ocl::runtime {
namespace {

void CL_CALLBACK call_back(cl_event, cl_int, void* data) {
  const std::unique_ptr<std::function<void()>> then(static_cast<std::function<void()>*>(data));
  (*then)();
}

}  // namespace

Signal::Signal(Device& device) {
  cl_int status = CL_SUCCESS;
  event_ = EventHandle(clCreateUserEvent(device.context(), &status));
  OCL_CHECK(status, "clCreateUserEvent on " + device.describe());
}

void Signal::set() noexcept {
  if (set_.exchange(true) || !runtimes_usable()) return;
  clSetUserEventStatus(event_.get(), CL_COMPLETE);
}

void Signal::block(Queue& queue) const {
  if (set_) return;
  queue.wait_for(event_.get());
  queue.flush();
}

void when_done(cl_event event, std::function<void()> then) {
  auto data = std::make_unique<std::function<void()>>(std::move(then));
  OCL_CHECK(clSetEventCallback(event, CL_COMPLETE, &call_back, data.get()), "a callback of an event");
  data.release();
}

}  // namespace ocl::runtime
