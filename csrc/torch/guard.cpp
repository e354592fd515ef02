// csrc/torch/guard.cpp: lets torch's generic code handle devices, streams and events. A stream is a queue, and its id
// is the queue's number. An event is a marker in a queue.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/headeronly/version.h>

#include <memory>

#include "csrc/runtime/queues/event.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"

namespace ocl::aten {

namespace {

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
    at_boundary([&] { device_at(device.index()); });  // Throws if there is no such index.
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  c10::Stream getStream(c10::Device device) const override {
    return stream_of(index_of(device), current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(index_of(device), 0); }
  c10::Stream getNewStream(c10::Device device, int priority = 0) const override {
    return at_boundary([&] { return stream_of(index_of(device), device_at(index_of(device)).next_stream(priority)); });
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool urgent = false) const override {
    return getNewStream(device, urgent ? -1 : 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream old = getStream(stream.device());
    set_current_stream(stream.device_index(), static_cast<int>(stream.id()));
    return old;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return at_boundary([&] { return queue_of(stream).idle(); });
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
      // BACKEND_DEFAULT stands for enable_timing=True.
      auto fresh = std::make_unique<runtime::Event>(queue_of(stream), flag == c10::EventFlag::BACKEND_DEFAULT);
      delete event_of(*event);
      *event = fresh.release();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    at_boundary([&] { event_of(event)->block(queue_of(stream)); });
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || at_boundary([&] { return event_of(event)->complete(); });
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    at_boundary([&] { event_of(event)->wait(); });
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (!in_bad_fork()) delete event_of(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "elapsed_time: both events must have been recorded");
    const runtime::Event &first = *event_of(start), &last = *event_of(end);
    TORCH_CHECK(first.timed() && last.timed(), "elapsed_time: create both events with enable_timing=True");
    TORCH_CHECK(&first.device() == &last.device(), "elapsed_time: the events are of ocl:", first.device().index,
                " and ocl:", last.device().index, ", whose clocks differ");
    return at_boundary([&] { return static_cast<double>(last.time_ns() - first.time_ns()) / 1e6; });
  }
  void recordDataPtrOnStream(const c10::DataPtr& ptr, const c10::Stream& stream) const override {
    static_cast<c10::DeviceAllocator*>(device_allocator())->recordStream(ptr, stream);
  }

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 12
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    // The types of compiled kernels. Tensors of other types can be stored, but their ops run on the CPU.
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_Bool = types.has_Byte = types.has_Char = types.has_Short = types.has_Int = types.has_Long = 1;
    types.has_Half = types.has_BFloat16 = types.has_Float = 1;
    at_boundary([&] { types.has_Double = has_fp64(index_of(device)); });
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
  static runtime::Event* event_of(void* event) { return static_cast<runtime::Event*>(event); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, OclGuard)

}  // namespace

}  // namespace ocl::aten
