// csrc/runtime/queues/event.cpp: makes, queries and times events; see event.h.
#include "csrc/runtime/queues/event.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "csrc/runtime/queues/signal.h"

namespace ocl::runtime {
namespace {

int64_t end_of(cl_event event) {
  cl_ulong time = 0;
  const cl_int status = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof time, &time, nullptr);
  return status == CL_SUCCESS ? static_cast<int64_t>(time) : 0;
}

/// Enqueues a command whose event has a time, and returns the event. The command fills a few bytes of memory, which the runtime
/// frees when the command is done.
EventHandle timed_fill(Queue& queue) {
  constexpr size_t kBytes = 16;
  const DeviceInfo& device = queue.device();
  cl_int status = CL_SUCCESS;
  const MemHandle scratch(clCreateBuffer(device.context.get(), CL_MEM_READ_WRITE, kBytes, nullptr, &status));
  OCL_CHECK(status, "memory for an event on " + device.describe());
  const uint32_t zero = 0;
  cl_event event = nullptr;
  queue.fill(scratch.get(), 0, kBytes, &zero, sizeof(zero), &event);
  queue.flush();
  return EventHandle(event);
}

/// Returns an event that the host completes.
EventHandle user_event(const DeviceInfo& device) {
  cl_int status = CL_SUCCESS;
  EventHandle event(clCreateUserEvent(device.context.get(), &status));
  OCL_CHECK(status, "clCreateUserEvent on " + device.describe());
  return event;
}

/// Returns an event in `device`'s context that completes together with `source`, an event of device `owner`. Contexts cannot
/// wait for each other's events, so the host completes the second event.
EventHandle twin_in(const DeviceInfo& device, const DeviceInfo& owner, cl_event source) {
  EventHandle twin = user_event(device);
  const auto shared_twin = std::make_shared<EventHandle>(retained(twin.get()));
  const auto shared_source = std::make_shared<EventHandle>(retained(source));
  when_done(owner, source, [shared_twin, shared_source] {
    cl_int status = CL_COMPLETE;
    clGetEventInfo(shared_source->get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    clSetUserEventStatus(shared_twin->get(), status < 0 ? status : CL_COMPLETE);
  });
  return twin;
}

}  // namespace

Event::Event(Queue& queue, bool timed)
    : device_(queue.device()),
      stream_(queue.stream()),
      timed_(timed),
      handle_(timed && !device_.caps.marker_times ? timed_fill(queue) : queue.marker()) {}

bool Event::complete() const {
  cl_int state = CL_QUEUED;
  OCL_CHECK(clGetEventInfo(handle_.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr), "an event");
  return completed(state, device_.describe());
}

void Event::wait() const {
  const cl_event event = handle_.get();
  NotedCommand noted(CommandType::kEventWait, device_.index, stream_);
  OCL_CHECK(clWaitForEvents(1, &event), "an event of " + device_.describe());
  noted.done();
}

bool Event::wait_for(std::chrono::duration<double> time) const {
  using std::chrono::microseconds;
  const auto start = std::chrono::steady_clock::now();
  // OpenCL has no wait with a limit. Short work is seen soon, and long work costs no core.
  for (microseconds pause{20}; !complete(); pause = std::min(2 * pause, microseconds{1000})) {
    const std::chrono::duration<double> left = time - (std::chrono::steady_clock::now() - start);
    if (left.count() <= 0) return false;
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(pause, left));
  }
  return true;
}

void Event::block(Queue& queue) const {
  if (&queue.device() == &device_) return queue.wait_for(handle_.get());
  if (is_done(handle_.get())) return wait();
  queue.wait_for(twin_in(queue.device(), device_, handle_.get()).get());
  queue.flush();
}

int64_t Event::time_ns() const {
  OCL_ASSERT(timed_, "only a timed event has a time");
  wait();
  const int64_t time = end_of(handle_.get());
  if (time == 0) fail(ErrorKind::kDevice, "no time of an event can be had from " + device_.describe());
  return time;
}

bool markers_have_times(Queue& queue) {
  const EventHandle marker = queue.marker();
  const cl_event event = marker.get();
  return clWaitForEvents(1, &event) == CL_SUCCESS && end_of(event) > 0;
}

}  // namespace ocl::runtime
