// csrc/runtime/event.cpp: makes, queries and times events; see event.h.
#include "csrc/runtime/event.h"

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/queue.h"

namespace ocl::runtime {
namespace {

int64_t end_of(cl_event event) {
  cl_ulong time = 0;
  const cl_int status = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof time, &time, nullptr);
  return status == CL_SUCCESS ? static_cast<int64_t>(time) : 0;
}

/// Enqueues a command whose event has a time, and returns the event. The command fills a few bytes of memory, which later work
/// of the queue can reuse at once.
EventHandle timed_fill(Queue& queue) {
  constexpr size_t kBytes = 16;
  Allocator& allocator = queue.device().allocator();
  void* scratch = allocator.allocate(kBytes, queue.stream());
  const Location at = allocator.resolve(scratch);
  const uint32_t zero = 0;
  cl_event event = nullptr;
  queue.fill(at.mem, at.offset_bytes, kBytes, &zero, sizeof(zero), &event);
  allocator.free(scratch);
  queue.flush();
  return EventHandle(event);
}

/// Returns an event that the host completes.
EventHandle user_event(Device& device) {
  cl_int status = CL_SUCCESS;
  EventHandle event(clCreateUserEvent(device.context(), &status));
  OCL_CHECK(status, "clCreateUserEvent on " + device.describe());
  return event;
}

/// The driver calls this when the work before an event is over. Completes `user_event`, an event of another context, and
/// releases it.
void CL_CALLBACK pass_on(cl_event, cl_int status, void* user_event) {
  const EventHandle event(static_cast<cl_event>(user_event));
  clSetUserEventStatus(event.get(), status < 0 ? status : CL_COMPLETE);
}

/// Returns an event in `device`'s context that completes together with `source`. Contexts cannot wait for each other's
/// events, so a callback of the first driver completes the second event.
EventHandle twin_in(Device& device, cl_event source) {
  EventHandle twin = user_event(device);
  clRetainEvent(twin.get());
  const cl_int status = clSetEventCallback(source, CL_COMPLETE, &pass_on, twin.get());
  if (status == CL_SUCCESS) return twin;
  const EventHandle unused(twin.get());
  raise_status(status, "clSetEventCallback", device.describe());
}

}  // namespace

Event::Event(Queue& queue, bool timed)
    : device_(queue.device()),
      stream_(queue.stream()),
      timed_(timed),
      handle_(timed && !device_.caps().marker_times ? timed_fill(queue) : queue.marker()) {}

bool Event::complete() const {
  cl_int state = CL_QUEUED;
  OCL_CHECK(clGetEventInfo(handle_.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr), "an event");
  return completed(state, device_.describe());
}

void Event::wait() const {
  const cl_event event = handle_.get();
  NotedCommand noted(CommandType::kEventWait, device_.index(), stream_);
  OCL_CHECK(clWaitForEvents(1, &event), "an event of " + device_.describe());
  noted.done();
}

void Event::block(Queue& queue) const {
  if (&queue.device() == &device_) return queue.wait_for(handle_.get());
  if (is_done(handle_.get())) return wait();
  queue.wait_for(twin_in(queue.device(), handle_.get()).get());
  queue.flush();
}

int64_t Event::time_ns() const {
  OCL_ASSERT(timed_, "only a timed event has a time");
  wait();
  const int64_t time = end_of(handle_.get());
  if (time == 0) fail(ErrorKind::kDevice, "no time of an event can be had from " + device_.describe());
  return time;
}

bool completed(cl_int execution_status, const std::string& where) {
  if (execution_status < 0) raise_status(execution_status, "the work before an event", where);
  return execution_status == CL_COMPLETE;
}

bool is_done(cl_event event) noexcept {
  cl_int state = CL_QUEUED;
  return clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr) == CL_SUCCESS &&
         state <= CL_COMPLETE;
}

bool markers_have_times(Queue& queue) {
  const EventHandle marker = queue.marker();
  const cl_event event = marker.get();
  return clWaitForEvents(1, &event) == CL_SUCCESS && end_of(event) > 0;
}

}  // namespace ocl::runtime
