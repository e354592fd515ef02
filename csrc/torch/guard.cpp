// csrc/torch/guard.cpp: devices, streams and events as torch's generic code drives them. A stream is a queue, its id the queue's
// number; an event is a marker in a queue.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/headeronly/version.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"

namespace ocl::aten {

namespace {

using Clock = std::chrono::steady_clock;

/// When a marker completed, on the host's clock: the callback holds it too, so that it outlives a destroyed event.
struct Completion {
  std::mutex mutex;
  std::condition_variable done;
  bool complete = false;
  Clock::time_point time;
};

struct Event {
  runtime::EventHandle marker;
  std::shared_ptr<Completion> completion;  // null without timing
};

void CL_CALLBACK on_complete(cl_event, cl_int, void* data) {
  const std::unique_ptr<std::shared_ptr<Completion>> completion(static_cast<std::shared_ptr<Completion>*>(data));
  const std::lock_guard lock((*completion)->mutex);
  (*completion)->time = Clock::now();
  (*completion)->complete = true;
  (*completion)->done.notify_all();
}

bool is_complete(cl_event event) {
  cl_int state = CL_QUEUED;
  OCL_CHECK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr), "an ocl event");
  return state <= CL_COMPLETE;
}

class OclGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device getDevice() const override { return device_of(current_device()); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    if (device.index() >= 0 && device != old) setDevice(device);
    return old;
  }
  void setDevice(c10::Device device) const override {
    note_thread();
    if (device.index() < 0 || device.index() == current_device()) return;
    at_boundary([&] { device_at(device.index()); });  // the index exists
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  c10::Stream getStream(c10::Device device) const override { return stream_of(index_of(device), current_stream(index_of(device))); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(index_of(device), 0); }
  c10::Stream getNewStream(c10::Device device, int = 0) const override {
    return at_boundary([&] { return stream_of(index_of(device), new_stream(index_of(device))); });
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool = false) const override { return getNewStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream old = getStream(stream.device());
    set_current_stream(stream.device_index(), static_cast<int>(stream.id()));
    return old;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return at_boundary([&] {
      runtime::Queue& queue = queue_of(stream);
      const runtime::EventHandle marker = queue.marker();
      queue.flush();
      return is_complete(marker.get());
    });
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    at_boundary([&] { queue_of(stream).finish(); });
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    at_boundary([&] { device_at(device).synchronize(); });
  }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return at_boundary([&] { return static_cast<void*>(queue_of(stream).get()); });
  }
#endif

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    at_boundary([&] {
      runtime::Queue& queue = queue_of(stream);
      auto fresh = std::make_unique<Event>();
      fresh->marker = queue.marker();
      if (flag == c10::EventFlag::BACKEND_DEFAULT) {  // enable_timing=True
        fresh->completion = std::make_shared<Completion>();
        auto* data = new std::shared_ptr<Completion>(fresh->completion);
        const cl_int status = clSetEventCallback(fresh->marker.get(), CL_COMPLETE, &on_complete, data);
        if (status != CL_SUCCESS) {
          delete data;
          runtime::raise_status(status, "clSetEventCallback", device_at(stream.device_index()).describe());
        }
      }
      queue.flush();
      delete static_cast<Event*>(*event);
      *event = fresh.release();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    at_boundary([&] {
      runtime::Queue& queue = queue_of(stream);
      queue.wait_for(static_cast<Event*>(event)->marker.get());
    });
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    return at_boundary([&] { return is_complete(static_cast<Event*>(event)->marker.get()); });
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    at_boundary([&] {
      const cl_event marker = static_cast<Event*>(event)->marker.get();
      OCL_CHECK(clWaitForEvents(1, &marker), "an ocl event");
    });
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (!in_bad_fork()) delete static_cast<Event*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(completion_time(end) - completion_time(start)).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& ptr, const c10::Stream& stream) const override {
    static_cast<c10::DeviceAllocator*>(device_allocator())->recordStream(ptr, stream);
  }

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 12
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    c10::DeviceCapability capability;
    at_boundary([&] {
      if (has_fp64(device.index() < 0 ? current_device() : device.index())) return;
      capability.capability_data.supported_scalar_types.has_Double = 0;
      capability.capability_data.supported_scalar_types.has_ComplexDouble = 0;
    });
    return capability;
  }
#endif

 private:
  static c10::Device device_of(int index) { return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)}; }
  static int index_of(c10::Device device) { return device.index() < 0 ? current_device() : device.index(); }
  static c10::Stream stream_of(int device, int stream) { return c10::Stream(c10::Stream::UNSAFE, device_of(device), stream); }
  static runtime::Queue& queue_of(const c10::Stream& stream) {
    return device_at(stream.device_index()).queue(static_cast<int>(stream.id()));
  }
  static Clock::time_point completion_time(void* event) {
    TORCH_CHECK(event != nullptr, "elapsed_time: both events must have been recorded");
    Completion* completion = static_cast<Event*>(event)->completion.get();
    TORCH_CHECK(completion != nullptr, "elapsed_time: create both events with enable_timing=True");
    std::unique_lock lock(completion->mutex);
    completion->done.wait(lock, [&] { return completion->complete; });
    return completion->time;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, OclGuard)

}  // namespace

}  // namespace ocl::aten
