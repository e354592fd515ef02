// csrc/runtime/device/clock.cpp: see clock.h.
#include "csrc/runtime/device/clock.h"

#include <algorithm>
#include <limits>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/cl.h"
#include "csrc/runtime/opencl/create_queue.h"
#include "csrc/runtime/record/history.h"

namespace ocl::runtime {
namespace {

constexpr int kTries = 8;
constexpr int64_t kLongSampleNs = 1000000;  // Two samples this many ns apart give a precise drift between the clocks.

}  // namespace

std::optional<ClockSample> sample_clock(Device& device) {
  cl_int status = CL_SUCCESS;
  // The sample has its own queue, so that it neither delays nor waits for the work of the device's streams.
  const CreatedQueue made = create_queue(device.context(), device.id());
  OCL_CHECK(made.status, "clCreateCommandQueue on " + device.describe());
  if (!made.times) return std::nullopt;
  const QueueHandle& queue = made.handle;
  const MemHandle memory(clCreateBuffer(device.context(), CL_MEM_READ_WRITE, 64, nullptr, &status));
  OCL_CHECK(status, "clCreateBuffer on " + device.describe());
  // The command is enqueued after `before` and ends before `after`. Each try narrows the interval [least, most] of the
  // difference between the clocks.
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max(), end = 0;
  for (int i = 0; i < kTries; ++i) {
    const cl_uint zero = 0;
    cl_event raw = nullptr;
    const int64_t before = unix_ns();
    OCL_CHECK(clEnqueueFillBuffer(queue.get(), memory.get(), &zero, sizeof zero, 0, 64, 0, nullptr, &raw), device.describe());
    const EventHandle event(raw);
    OCL_CHECK(clWaitForEvents(1, &raw), device.describe());
    const int64_t after = unix_ns();
    cl_ulong queued = 0, ended = 0;
    if (clGetEventProfilingInfo(raw, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, nullptr) != CL_SUCCESS ||
        clGetEventProfilingInfo(raw, CL_PROFILING_COMMAND_END, sizeof ended, &ended, nullptr) != CL_SUCCESS || ended == 0)
      return std::nullopt;
    end = static_cast<int64_t>(ended);
    most = std::min(most, after - end);
    if (queued != 0) least = std::max(least, before - static_cast<int64_t>(queued));
  }
  if (least > most) least = most;  // Contradictory bounds: the driver took the time of enqueueing from another clock.
  const int64_t middle = least + (most - least) / 2;
  return ClockSample{end, end + middle, (most - least) / 2};
}

DeviceClock::DeviceClock(std::optional<ClockSample> first, ClockSample last)
    : from_(last), uncertainty_ns_(last.uncertainty_ns) {
  if (!first) return;
  uncertainty_ns_ = std::max(uncertainty_ns_, first->uncertainty_ns);
  const int64_t passed = last.device_ns - first->device_ns;
  const int64_t gained = (last.unix_ns - first->unix_ns) - passed;
  if (passed > kLongSampleNs) drift_ = static_cast<double>(gained) / static_cast<double>(passed);
}

int64_t DeviceClock::unix_ns(int64_t device_ns) const {
  const int64_t passed = device_ns - from_.device_ns;
  return from_.unix_ns + passed + static_cast<int64_t>(drift_ * static_cast<double>(passed));
}

void DeviceClock::move(int64_t ns) { from_.unix_ns += std::clamp<int64_t>(ns, 0, uncertainty_ns_); }

}  // namespace ocl::runtime
