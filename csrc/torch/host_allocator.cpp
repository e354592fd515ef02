// csrc/torch/host_allocator.cpp: pinned blocks in size classes (powers of two). A freed block waits in `pending` for the copies
// that read or write it, then may be handed out again.
#include "csrc/torch/host_allocator.h"

#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"

namespace ocl::aten {

namespace {

constexpr size_t kSmallestBlock = 4096;  // a page

struct Block {
  char* address = nullptr;
  size_t bytes = 0;
  cl_mem mapped = nullptr;  // the buffer behind it on devices with their own memory; null: ordinary aligned memory
  std::vector<runtime::EventHandle> events;
};

class OclHostAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &OclHostAllocator::release, at::kCPU};
    Block* block = at_boundary([&] { return take(std::bit_ceil(std::max(bytes, kSmallestBlock))); });
    return {block->address, block, &OclHostAllocator::release, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }  // data is not the context
  void copy_data(void* dst, const void* src, size_t bytes) const override { std::memcpy(dst, src, bytes); }

  bool record_event(void* address, void*, c10::Stream stream) override {
    return at_boundary([&] {
      return hold_until_done(address, device_at(stream.device_index()).queue(static_cast<int>(stream.id())));
    });
  }

  void empty_cache() override {
    const std::lock_guard lock(mutex_);
    collect();
    for (auto& [size, block] : free_) {
      reserved_.decrease(size);
      destroy(block);
    }
    free_.clear();
  }
  at::HostStats get_stats() override {
    const std::lock_guard lock(mutex_);
    at::HostStats stats;
    stats.allocated_bytes = reserved_;
    stats.active_bytes = active_;
    return stats;
  }
  void reset_accumulated_stats() override {
    const std::lock_guard lock(mutex_);
    active_.reset_accumulated();
    reserved_.reset_accumulated();
  }
  void reset_peak_stats() override {
    const std::lock_guard lock(mutex_);
    active_.reset_peak();
    reserved_.reset_peak();
  }

  bool owns(const void* address) noexcept {
    const std::lock_guard lock(mutex_);
    return find(address) != nullptr;
  }
  bool hold(const void* address, runtime::Queue& queue) {
    const std::lock_guard lock(mutex_);
    Block* block = find(address);
    if (block == nullptr) return false;
    block->events.push_back(queue.marker());
    return true;
  }

 private:
  static void release(void* context);

  Block* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    collect();
    active_.increase(bytes);
    if (const auto found = free_.find(bytes); found != free_.end()) {
      Block* block = found->second;
      free_.erase(found);
      return block;
    }
    auto* block = new Block;
    block->bytes = bytes;
    if (device_count() > 0 && !device_at(-1).caps().unified) map(*block, device_at(-1));
    if (block->address == nullptr) block->address = static_cast<char*>(std::aligned_alloc(kSmallestBlock, bytes));
    if (block->address == nullptr) {
      delete block;
      active_.decrease(bytes);
      fail(ErrorKind::kOutOfMemory, "no host memory left for " + std::to_string(bytes) + " bytes of pinned memory");
    }
    reserved_.increase(bytes);
    blocks_[block->address] = block;
    return block;
  }

  /// Memory of the driver's own, which it can transfer directly. Leaves `block` as it was where the driver has none.
  static void map(Block& block, runtime::Device& device) {
    cl_int status = CL_SUCCESS;
    cl_mem mem = clCreateBuffer(device.context(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, block.bytes, nullptr, &status);
    if (status != CL_SUCCESS) return;
    void* address = clEnqueueMapBuffer(device.queue(0).get(), mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, block.bytes, 0,
                                       nullptr, nullptr, &status);
    if (status != CL_SUCCESS) {
      clReleaseMemObject(mem);
      return;
    }
    block.mapped = mem;
    block.address = static_cast<char*>(address);
  }

  void destroy(Block* block) {
    blocks_.erase(block->address);
    if (block->mapped)
      clReleaseMemObject(block->mapped);  // releases the mapping with it
    else
      std::free(block->address);
    delete block;
  }

  /// Moves freed blocks whose copies are done to the free list.
  void collect() {
    std::erase_if(pending_, [&](Block* block) {
      std::erase_if(block->events, [](const runtime::EventHandle& event) {
        cl_int state = CL_QUEUED;
        const cl_int status = clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
        return status != CL_SUCCESS || state <= CL_COMPLETE;
      });
      if (!block->events.empty()) return false;
      free_.emplace(block->bytes, block);
      return true;
    });
  }

  Block* find(const void* address) const {
    auto above = blocks_.upper_bound(static_cast<const char*>(address));
    if (above == blocks_.begin()) return nullptr;
    Block* block = std::prev(above)->second;
    return static_cast<const char*>(address) < block->address + block->bytes ? block : nullptr;
  }

  std::mutex mutex_;
  std::map<const char*, Block*> blocks_;
  std::multimap<size_t, Block*> free_;
  std::vector<Block*> pending_;
  c10::CachingAllocator::Stat active_, reserved_;
};

OclHostAllocator& allocator() {
  static auto* instance = new OclHostAllocator;  // outlives every tensor
  return *instance;
}

void OclHostAllocator::release(void* context) {
  if (context == nullptr) return;
  auto* block = static_cast<Block*>(context);
  OclHostAllocator& self = allocator();
  const std::lock_guard lock(self.mutex_);
  self.active_.decrease(block->bytes);
  self.pending_.push_back(block);
}

}  // namespace

at::HostAllocator* host_allocator() { return &allocator(); }
bool is_pinned(const void* address) noexcept { return allocator().owns(address); }
bool hold_until_done(const void* address, runtime::Queue& queue) { return allocator().hold(address, queue); }

}  // namespace ocl::aten

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, ocl::aten::host_allocator())
