// csrc/torch/hooks.cpp: the hooks that torch's core calls for an accelerator: availability, generators, pinned memory,
// resizing.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "csrc/runtime/memory/allocator.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/host_allocator.h"

namespace ocl::aten {

namespace {

struct OclHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return devices_ready(); }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    at_boundary([&] { device_at(device); });
    set_current_device(device);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex old = getCurrentDevice();
    if (device >= 0) setCurrentDevice(device);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    if (device < 0) device = getCurrentDevice();
    at_boundary([&] { device_at(device); });
    return at::make_generator<OclGenerator>(device);
  }

  at::Device getDeviceFromPtr(void* data) const override {
    const runtime::Device* device = runtime::device_of(data);
    TORCH_CHECK(device != nullptr, "the pointer does not belong to an ocl device");
    return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device->index())};
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    at_boundary([&] {
      const int index = storage.device().index();
      c10::DataPtr fresh = allocate_on(index, bytes);
      if (const size_t kept = std::min(bytes, storage.nbytes()); kept > 0) {
        runtime::Device& device = device_at(index);
        const int stream = current_stream(device.index());
        const runtime::Location from = device.allocator().use(storage.data(), stream);
        const runtime::Location to = device.allocator().use(fresh.get(), stream);
        device.queue(stream).copy(from.mem, from.offset_bytes, to.mem, to.offset_bytes, kept);
      }
      storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
      storage.unsafeGetStorageImpl()->set_nbytes(bytes);
    });
  }
};

const bool g_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new OclHooks);
  return true;
}();

}  // namespace

}  // namespace ocl::aten
