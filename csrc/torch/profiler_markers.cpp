// csrc/torch/profiler_markers.cpp: times ops by events around them, for torch.autograd.profiler.profile(use_kineto=False).
#include <torch/csrc/profiler/stubs/base.h>

#include "csrc/runtime/queues/event.h"
#include "csrc/runtime/record/history.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/profiler.h"

namespace ocl::aten {
namespace {

/// Times what the current stream did between two calls. This gives the device's time of each op, without our kernels' names.
struct Markers final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    at_boundary([&] {
      const int index = current_device();
      if (device) *device = static_cast<c10::DeviceIndex>(index);
      *event = std::make_shared<runtime::Event>(current_queue(index), true);
      if (cpu_ns) *cpu_ns = runtime::unix_ns();
    });
  }
  /// Returns the time from `first` to `last` in microseconds.
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* first,
                const torch::profiler::impl::ProfilerVoidEventStub* last) const override {
    return at_boundary([&] {
      const auto time = [](const auto* event) { return static_cast<const runtime::Event*>(event->get())->time_ns(); };
      return static_cast<float>(static_cast<double>(time(last) - time(first)) / 1e3);
    });
  }
  // OpenCL has no tool that shows a program's ranges next to its commands, so these do nothing.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> action) const override {
    const int before = current_device();
    for (int index = 0; index < device_count(); ++index) {
      set_current_device(index);
      action(index);
    }
    set_current_device(before);
  }
  void synchronize() const override {
    at_boundary([&] { device_at(-1).synchronize(); });
  }
};

}  // namespace

void register_profiler_markers() {
  static auto* markers = new Markers;
  torch::profiler::impl::registerPrivateUse1Methods(markers);
}

}  // namespace ocl::aten
