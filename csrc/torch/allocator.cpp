// csrc/torch/allocator.cpp: makes runtime's allocator torch's device allocator. A storage's data pointer is the
// reserved address, and also its context, so raw_allocate works too.
#include "csrc/runtime/memory/allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "csrc/runtime/device/free_memory.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/first_use.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

void report(runtime::Device& device, void* address, int64_t bytes) {
  const runtime::MemoryStats stats = device.allocator().stats();
  c10::reportMemoryUsageToProfiler(address, bytes, static_cast<size_t>(stats.allocated_bytes.all().current),
                                   static_cast<size_t>(stats.reserved_bytes.all().current),
                                   c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index())));
}

void release(void* address) {
  if (address == nullptr || in_bad_fork()) return;
  runtime::Device* device = runtime::device_of(address);
  if (device == nullptr) return;
  if (c10::memoryProfilingEnabled()) {
    try {
      report(*device, address, -static_cast<int64_t>(device->allocator().resolve(address).remaining_bytes));
    } catch (const Error& error) {
      TORCH_WARN("while freeing ocl memory: ", error.what());
    }
  }
  device->allocator().free(address);
}

c10::CachingAllocator::StatArray stat_array(const runtime::PooledStat& pooled) {
  c10::CachingAllocator::StatArray result;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].current = pooled.of[i].current;
    result[i].peak = pooled.of[i].peak;
    result[i].allocated = pooled.of[i].allocated;
    result[i].freed = pooled.of[i].freed;
  }
  return result;
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
      const int stream = current_stream(from->index());
      const runtime::Location a = from->allocator().use(src, stream), b = from->allocator().use(dst, stream);
      from->queue(stream).copy(a.mem, a.offset_bytes, b.mem, b.offset_bytes, bytes);
      from->allocator().wrote(dst, stream);
    });
  }

  bool initialized() override { return devices_ready(); }
  void emptyCache(c10::MempoolId_t) override {
    if (!devices_ready()) return;
    at_boundary([&] {
      for (int i = 0; i < device_count(); ++i) device_at(i).allocator().empty_cache();
    });
  }
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    // Uses the data pointer, not its context: they differ if the tensor is a view of a CUDA tensor.
    const void* address = ptr.get();
    if (address == nullptr) return;
    at_boundary([&] {
      runtime::Device* device = runtime::device_of(address);
      OCL_ASSERT(device != nullptr, "the memory is not on an ocl device");
      if (stream.device_index() != device->index())
        fail(ErrorKind::kConfig, "record_stream: the tensor is on ocl:" + std::to_string(device->index()) +
                                     ", the stream on ocl:" + std::to_string(stream.device_index()));
      device->allocator().record_stream(address, static_cast<int>(stream.id()));
    });
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return at_boundary([&] {
      const runtime::MemoryStats stats = device_at(device).allocator().stats();
      c10::CachingDeviceAllocator::DeviceStats out;
      out.allocation = stat_array(stats.blocks);
      out.segment = stat_array(stats.slabs);
      out.active = stat_array(stats.active_blocks);
      out.inactive_split = stat_array(stats.inactive_split_blocks);
      out.allocated_bytes = stat_array(stats.allocated_bytes);
      out.reserved_bytes = stat_array(stats.reserved_bytes);
      out.active_bytes = stat_array(stats.active_bytes);
      out.inactive_split_bytes = stat_array(stats.inactive_split_bytes);
      out.requested_bytes = stat_array(stats.requested_bytes);
      out.num_alloc_retries = stats.retries;
      out.num_ooms = stats.failures;
      out.num_sync_all_streams = stats.waits;
      out.num_device_alloc = stats.slab_allocations;
      out.num_device_free = stats.slab_frees;
      return out;
    });
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    at_boundary([&] { device_at(device).allocator().reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    at_boundary([&] { device_at(device).allocator().reset_peaks(); });
  }
  // NOLINT: overrides a function since torch 2.12
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) {
    return at_boundary([&] {
      runtime::Device& d = device_at(device);
      return std::pair<size_t, size_t>(runtime::free_memory(d), d.caps().global_bytes);
    });
  }
};

OclAllocator g_allocator;

}  // namespace

c10::Allocator* device_allocator() { return &g_allocator; }

c10::DataPtr allocate_on(int index, size_t bytes) {
  note_use();
  runtime::Device& device = device_at(index);
  const c10::Device where(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index()));
  if (bytes == 0) return {nullptr, nullptr, &release, where};
  const runtime::Sharing sharing = shares_new_tensors_with_cuda() ? runtime::Sharing::kCuda : runtime::Sharing::kNone;
  void* address = device.allocator().allocate(bytes, current_stream(device.index()), sharing);
  if (c10::memoryProfilingEnabled()) report(device, address, static_cast<int64_t>(bytes));
  return {address, address, &release, where};
}

}  // namespace ocl::aten

namespace {
REGISTER_ALLOCATOR(c10::kPrivateUse1, ocl::aten::device_allocator())
}
