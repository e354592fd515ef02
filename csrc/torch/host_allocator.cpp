// csrc/torch/host_allocator.cpp: pinned blocks whose sizes are powers of two. A freed block waits in `pending` until the copies
// that read or write it are done, and is then reused.
#include "csrc/torch/host_allocator.h"

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "csrc/runtime/device/pinned.h"
#include "csrc/runtime/queues/event.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"

namespace ocl::aten {

namespace {

struct Block {
  runtime::PinnedBlock memory;
  // For each queue, the last copy that reads or writes the block.
  std::map<runtime::Queue*, runtime::EventHandle> events;
};

class OclHostAllocator final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &OclHostAllocator::release, at::kCPU};
    Block* block = at_boundary([&] { return take(std::bit_ceil(std::max(bytes, runtime::PinnedBlock::kPageBytes))); });
    return {block->memory.address(), block, &OclHostAllocator::release, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }  // The data pointer is not the context.
  void copy_data(void* dst, const void* src, size_t bytes) const override { std::memcpy(dst, src, bytes); }

  bool record_event(void* address, void*, c10::Stream stream) override {
    return at_boundary(
        [&] { return hold_until_done(address, device_at(stream.device_index()).queue(static_cast<int>(stream.id()))); });
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
  size_t events() {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& [address, block] : blocks_) count += block->events.size();
    return count;
  }
  bool hold(const void* address, runtime::Queue& queue) {
    const std::lock_guard lock(mutex_);
    Block* block = find(address);
    if (block == nullptr) return false;
    block->events[&queue] = queue.marker();
    return true;
  }

 private:
  static void release(void* context);

  Block* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    collect();
    if (const auto found = free_.find(bytes); found != free_.end()) {
      Block* block = found->second;
      free_.erase(found);
      active_.increase(bytes);
      return block;
    }
    runtime::Device* device = device_count() > 0 ? &device_at(-1) : nullptr;
    Block* block = new Block{{bytes, device}, {}};
    reserved_.increase(bytes);
    active_.increase(bytes);
    blocks_[block->memory.address()] = block;
    return block;
  }

  void destroy(Block* block) {
    blocks_.erase(block->memory.address());
    delete block;
  }

  /// Moves freed blocks whose copies are done to the free list.
  void collect() {
    std::erase_if(pending_, [&](Block* block) {
      std::erase_if(block->events, [](const auto& entry) { return runtime::is_done(entry.second.get()); });
      if (!block->events.empty()) return false;
      free_.emplace(block->memory.bytes(), block);
      return true;
    });
  }

  Block* find(const void* address) const {
    auto above = blocks_.upper_bound(static_cast<const char*>(address));
    if (above == blocks_.begin()) return nullptr;
    Block* block = std::prev(above)->second;
    return static_cast<const char*>(address) < block->memory.address() + block->memory.bytes() ? block : nullptr;
  }

  std::mutex mutex_;
  std::map<const char*, Block*> blocks_;
  std::multimap<size_t, Block*> free_;
  std::vector<Block*> pending_;
  c10::CachingAllocator::Stat active_, reserved_;
};

OclHostAllocator& allocator() {
  // Never destroyed, so that it outlives every tensor.
  static auto* instance = new OclHostAllocator;
  return *instance;
}

void OclHostAllocator::release(void* context) {
  if (context == nullptr) return;
  auto* block = static_cast<Block*>(context);
  OclHostAllocator& self = allocator();
  const std::lock_guard lock(self.mutex_);
  self.active_.decrease(block->memory.bytes());
  self.pending_.push_back(block);
}

}  // namespace

at::HostAllocator* host_allocator() { return &allocator(); }
bool is_pinned(const void* address) noexcept { return allocator().owns(address); }
bool hold_until_done(const void* address, runtime::Queue& queue) { return allocator().hold(address, queue); }
size_t pinned_events() { return allocator().events(); }

}  // namespace ocl::aten

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, ocl::aten::host_allocator())
