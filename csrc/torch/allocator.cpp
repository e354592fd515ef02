// csrc/torch/allocator.cpp: runtime's allocator as torch's device allocator. A storage's pointer is a reserved address and its
// context at once, so raw_allocate works too.
#include "csrc/runtime/allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

// Blocks that other streams than the default one work with. A freed block is reused in the order of the default queue, so that
// queue first waits for those streams. Touched only on devices that have streams.
std::mutex g_stream_uses_mutex;
std::unordered_map<void*, std::unordered_set<int>> g_stream_uses;

void note_stream(void* address, int stream) {
  if (stream == 0 || address == nullptr) return;
  const std::lock_guard lock(g_stream_uses_mutex);
  g_stream_uses[address].insert(stream);
}

void wait_for_streams(runtime::Device& device, void* address) {
  std::unordered_set<int> streams;
  {
    const std::lock_guard lock(g_stream_uses_mutex);
    const auto found = g_stream_uses.find(address);
    if (found == g_stream_uses.end()) return;
    streams = std::move(found->second);
    g_stream_uses.erase(found);
  }
  for (const int stream : streams) {
    runtime::Queue& queue = device.queue(stream);
    device.queue(0).wait_for(queue.marker().get());
    queue.flush();
  }
}

void report(runtime::Device& device, void* address, int64_t bytes) {
  const runtime::MemoryStats stats = device.allocator().stats();
  c10::reportMemoryUsageToProfiler(address, bytes, stats.allocated, stats.reserved,
                                   c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index())));
}

void release(void* address) {
  if (address == nullptr || in_bad_fork()) return;
  runtime::Device* device = runtime::device_of(address);
  if (device == nullptr) return;
  try {
    if (has_streams(device->index())) wait_for_streams(*device, address);
    if (c10::memoryProfilingEnabled())
      report(*device, address, -static_cast<int64_t>(device->allocator().resolve(address).remaining_bytes));
  } catch (const Error& error) {
    TORCH_WARN("while freeing ocl memory: ", error.what());
  }
  device->allocator().free(address);
}

class OclAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return at_boundary([&] { return allocate_on(current_device(), bytes); });
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* dst, const void* src, size_t bytes) const override {
    if (bytes == 0) return;
    at_boundary([&] {
      runtime::Device* from = runtime::device_of(src);
      OCL_ASSERT(from != nullptr && from == runtime::device_of(dst), "copy_data within one device");
      const runtime::Location a = from->allocator().resolve(src), b = from->allocator().resolve(dst);
      current_queue(from->index()).copy(a.mem, a.offset_bytes, b.mem, b.offset_bytes, bytes);
      from->allocator().wrote(dst);
    });
  }

  bool initialized() override { return devices_ready(); }
  void emptyCache(c10::MempoolId_t) override {
    if (!devices_ready()) return;
    at_boundary([&] {
      for (int i = 0; i < device_count(); ++i) {
        device_at(i).synchronize();
        device_at(i).allocator().empty_cache();
      }
    });
  }
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    note_stream(ptr.get_context(), static_cast<int>(stream.id()));
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return at_boundary([&] {
      const runtime::MemoryStats stats = device_at(device).allocator().stats();
      c10::CachingDeviceAllocator::DeviceStats out;
      const auto set = [](c10::CachingAllocator::StatArray& stat, int64_t current, int64_t peak) {
        stat[0].current = current;
        stat[0].peak = peak;
        stat[0].allocated = peak;
        stat[0].freed = peak - current;
      };
      set(out.allocated_bytes, stats.allocated, stats.allocated_peak);
      set(out.active_bytes, stats.allocated, stats.allocated_peak);
      set(out.requested_bytes, stats.allocated, stats.allocated_peak);
      set(out.reserved_bytes, stats.reserved, stats.reserved_peak);
      set(out.allocation, stats.allocations - stats.frees, stats.allocations);
      out.allocation[0].allocated = stats.allocations;
      out.allocation[0].freed = stats.frees;
      out.num_alloc_retries = stats.retries;
      out.num_ooms = stats.failures;
      return out;
    });
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    at_boundary([&] { device_at(device).allocator().reset_peaks(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) {  // NOLINT: overrides from torch 2.12 on
    return at_boundary([&] {
      runtime::Device& d = device_at(device);
      const size_t total = d.caps().global_bytes, held = d.allocator().stats().reserved;
      return std::pair<size_t, size_t>(total > held ? total - held : 0, total);
    });
  }
};

OclAllocator g_allocator;

}  // namespace

c10::Allocator* device_allocator() { return &g_allocator; }

c10::DataPtr allocate_on(int index, size_t bytes) {
  runtime::Device& device = device_at(index);
  const c10::Device where(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index()));
  if (bytes == 0) return {nullptr, nullptr, &release, where};
  void* address = device.allocator().allocate(bytes);
  if (has_streams(device.index())) {
    if (const int stream = current_stream(device.index()); stream != 0) {
      // The block may still be in use by the default queue, in whose order blocks are reused.
      device.queue(stream).wait_for(device.queue(0).marker().get());
      device.queue(0).flush();
      note_stream(address, stream);
    }
  }
  if (c10::memoryProfilingEnabled()) report(device, address, static_cast<int64_t>(bytes));
  return {address, address, &release, where};
}

}  // namespace ocl::aten

namespace {
REGISTER_ALLOCATOR(c10::kPrivateUse1, ocl::aten::device_allocator())
}
