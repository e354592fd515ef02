// csrc/runtime/memory/allocator.cpp: allocates slabs from the device, and blocks of slabs for streams. A freed block that other
// streams use is not reused before they are done with it.
#include "csrc/runtime/memory/allocator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "csrc/runtime/memory/address_range.h"
#include "csrc/runtime/memory/memory_holders.h"
#include "csrc/runtime/memory/slab.h"
#include "csrc/runtime/memory/slab_memory.h"
#include "csrc/runtime/memory/slab_sizes.h"
#include "csrc/runtime/queues/queues.h"
#include "csrc/support/log.h"

namespace ocl::runtime {
struct Allocator::State {
  State(const DeviceInfo& device_, Queues& queues_)
      : device(device_), queues(queues_), memory(device_, queues_), range(device_), free_blocks(stats) {
    align = static_cast<size_t>(device.caps.base_align_bytes);
  }

  ~State() {
    std::vector<Slab*> slabs;
    range.for_each_slab([&](Slab* slab) { slabs.push_back(slab); });
    for (Slab* slab : slabs) release(slab);
  }

  /// Returns the live block that contains `address`; nullptr if there is none.
  Block* block_at(const void* address) const noexcept {
    const auto value = reinterpret_cast<uintptr_t>(address);
    const Slab* slab = range.slab_at(value);
    Block* block = slab ? slab->block_at(value) : nullptr;
    return block && !block->free ? block : nullptr;
  }

  Block& live_block(const void* address) const {
    Block* block = block_at(address);
    OCL_ASSERT(block && block->requested > 0, "address is not of a live allocation of " + device.describe());
    return *block;
  }

  int64_t most_reserved() const { return static_cast<int64_t>(fraction * static_cast<double>(device.caps.global_bytes)); }

  /// Allocates a slab as one free block of `stream`. Returns nullptr and sets `problem` if that fails.
  Block* new_slab(size_t bytes, Pool pool, int stream, const CallSite& site) {
    const Caps& caps = device.caps;
    if (static_cast<int64_t>(bytes) > caps.max_alloc_bytes) {
      problem = "the largest buffer of this device is " + size_text(caps.max_alloc_bytes);
      return nullptr;
    }
    if (stats.reserved_bytes.all().current + static_cast<int64_t>(bytes) > most_reserved()) {
      problem = fraction < 1 ? "set_per_process_memory_fraction allows this process " + size_text(most_reserved())
                             : "the device has " + size_text(caps.global_bytes);
      return nullptr;
    }
    auto slab = std::make_unique<Slab>(bytes, pool, stream);
    if (!memory.create(*slab, problem)) return nullptr;
    return placed(std::move(slab), site);
  }

  /// Gives a slab with memory its addresses, as one free block. Returns nullptr and sets `problem` if there are none.
  Block* placed(std::unique_ptr<Slab> slab, const CallSite& site) {
    const Pool pool = slab->pool;
    if (!range.place(slab.get())) {
      problem = "its " + size_text(static_cast<int64_t>(range.bytes())) + " of addresses are in use";
      memory.release(*slab);
      return nullptr;
    }
    Block* block = slab->blocks.begin()->second;
    free_blocks.insert(block);
    stats.slabs.increase(pool == kSmall, 1);
    stats.reserved_bytes.increase(pool == kSmall, static_cast<int64_t>(slab->bytes));
    ++stats.slab_allocations;
    slab->site = site;
    history.record(MemoryAction::kSegmentAlloc, slab->address, slab->bytes, slab->stream, site);
    slab.release();  // `range` owns the slab now.
    return block;
  }

  /// Frees a slab. Nothing may use it any more, and none of its blocks may be in a list.
  void release(Slab* slab) noexcept {
    history.record(MemoryAction::kSegmentFree, slab->address, slab->bytes, slab->stream, nullptr);
    range.remove(slab);
    memory.release(*slab);
    stats.slabs.decrease(slab->pool == kSmall, 1);
    stats.reserved_bytes.decrease(slab->pool == kSmall, static_cast<int64_t>(slab->bytes));
    ++stats.slab_frees;
    delete slab;
  }

  /// Waits for the device, joins free blocks of all streams, and frees the slabs that have no live blocks. `lock` holds the
  /// mutex before and after the call. The waits are without it, because the device may wait for a thread of a process group
  /// that wants the mutex.
  void release_cached(std::unique_lock<std::mutex>& lock) {
    constexpr int kTries = 100;  // Other threads may enqueue more work all the time.
    for (int i = 0; i < kTries && queues.have_work(); ++i) {
      lock.unlock();
      try {
        queues.synchronize();
      } catch (...) {
        lock.lock();
        throw;
      }
      lock.lock();
    }
    queues.synchronize();
    ++stats.waits;
    collect_waiting();
    range.for_each_slab([&](Slab* slab) { free_blocks.rejoin(slab); });
    for (Slab* slab : free_blocks.unused_slabs()) {
      free_blocks.erase(slab->blocks.begin()->second);
      release(slab);
    }
  }

  size_t reserved() const { return static_cast<size_t>(stats.reserved_bytes.all().current); }

  Block* find_or_grow(size_t bytes, int stream, Sharing sharing, const CallSite& site) {
    const Pool pool = pool_of(bytes, sharing);
    if (Block* block = free_blocks.best_fit(stream, pool, bytes)) return block;
    if (Block* block =
            new_slab(slab_bytes(pool, bytes, stream, device.caps, reserved(), memory.cuda_is_preferred()), pool, stream, site))
      return block;
    // The device is nearly full: allocate no more than needed.
    return pool == kOwn ? nullptr : new_slab(round_up(bytes, pool == kShared ? kOwnSlabStep : kMiB), pool, stream, site);
  }

  /// Makes `bytes` bytes of the block live. The rest of the block stays free.
  void take(Block* block, size_t bytes, size_t requested, int stream, CallSite site) {
    const bool small = block->slab->pool == kSmall;
    free_blocks.take(block, bytes, small || block->slab->pool == kShared ? align : kSmallLimit / 16);
    block->stream = stream;
    block->requested = requested;
    block->version = ++last_version;
    block->writer = stream;
    block->written_outside = false;
    block->purpose = MemoryPurpose::current();
    history.record(MemoryAction::kAlloc, block->address(), block->bytes, stream, site);
    block->site = std::move(site);
    stats.blocks.increase(small, 1);
    stats.active_blocks.increase(small, 1);
    stats.allocated_bytes.increase(small, static_cast<int64_t>(block->bytes));
    stats.active_bytes.increase(small, static_cast<int64_t>(block->bytes));
    stats.requested_bytes.increase(small, static_cast<int64_t>(requested));
  }

  /// Puts a freed block into the free lists. The caller has made sure that no stream uses it any more.
  void give_back(Block* block) {
    const bool small = block->slab->pool == kSmall;
    stats.active_blocks.decrease(small, 1);
    stats.active_bytes.decrease(small, static_cast<int64_t>(block->bytes));
    history.record(MemoryAction::kFreeCompleted, block->address(), block->bytes, block->stream, nullptr);
    block->purpose.reset();
    block->site.reset();
    if (block->slab->pool == kForeign) return release(block->slab);
    free_blocks.give_back(block);
  }

  /// Frees the block that begins at `address`, if there is one. Moves its dependents into `dependents`.
  void free_block(const void* address, std::vector<std::weak_ptr<Dependent>>& dependents) noexcept;

  /// Makes a freed block wait for the work that its other streams have enqueued so far. Returns false if it need not wait.
  bool wait_for_users(Block* block) noexcept {
    std::vector<int> users;
    users.swap(block->users);
    if (!runtimes_usable()) return false;
    for (const int stream : users) {
      try {
        waiting[stream].emplace_back(queues.of(stream).last_work(), block);
        ++block->pending;
      } catch (const std::exception&) {
        // The queue is broken. Nothing in it runs any more, and its next finish() reports the error.
      }
    }
    return block->pending > 0;
  }

  /// Puts the freed blocks that no stream uses any more into the free lists. A stream's events are in the order of its queue.
  void collect_waiting() {
    for (auto& [stream, events] : waiting)
      while (!events.empty() && is_done(events.front().first.get())) {
        Block* block = events.front().second;
        events.pop_front();
        if (--block->pending == 0) give_back(block);
      }
  }

  [[noreturn]] void out_of_memory(size_t requested, int stream, const CallSite& site) {
    ++stats.failures;
    const int64_t left = std::max<int64_t>(most_reserved() - stats.reserved_bytes.all().current, 0);
    history.record(MemoryAction::kOom, 0, requested, stream, site, left);
    fail(ErrorKind::kOutOfMemory, out_of_memory_text(device, requested, stats, problem, range));
  }

  Location location_of(Block& block, const void* address) {
    Location location;
    location.mem = block.slab->mem.get();
    location.offset_bytes = reinterpret_cast<uintptr_t>(address) - block.slab->address;
    const size_t end = block.offset + block.requested;
    location.remaining_bytes = end > location.offset_bytes ? end - location.offset_bytes : 0;
    if (block.slab->host) location.host = block.slab->host + location.offset_bytes;
    if (block.written_outside) block.version = ++last_version;
    location.version = block.version;
    location.writer = block.writer;
    return location;
  }

  static void add_user(Block& block, int stream) {
    if (stream == block.stream) return;
    if (std::find(block.users.begin(), block.users.end(), stream) == block.users.end()) block.users.push_back(stream);
  }

  Location use(const void* address, int stream) {
    Block& block = live_block(address);
    add_user(block, stream);
    return location_of(block, address);
  }

  void wrote(const void* address, int stream) {
    Block* block = block_at(address);
    if (!block) return;
    block->version = ++last_version;
    block->writer = stream;
  }

  const DeviceInfo& device;
  Queues& queues;
  uint64_t last_version = 0;
  size_t align = 128;
  SlabMemory memory;
  AddressRange range;
  std::string problem;
  MemoryStats stats;
  FreeBlocks free_blocks;
  MemoryHistory history;
  double fraction = 1;  // The share of the device's memory that this process may reserve.
  // Stream -> the freed blocks that wait for its events.
  std::map<int, std::deque<std::pair<EventHandle, Block*>>> waiting;
  mutable std::mutex mutex;
};

Allocator::Allocator(const DeviceInfo& device, Queues& queues) : state_(std::make_unique<State>(device, queues)) {}
Allocator::~Allocator() = default;

void* Allocator::allocate(size_t bytes, int stream, Sharing sharing) {
  if (bytes == 0) return nullptr;
  State& s = *state_;
  if (sharing == Sharing::kCuda) CudaDevice::of(s.device);  // Throws if there is none.
  CallSite site = call_site();
  std::unique_lock lock(s.mutex);
  if (bytes > AddressRange::kMaxBytes) {
    s.problem = "more than any device has";
    s.out_of_memory(bytes, stream, site);
  }
  const size_t rounded = round_up(bytes + 1, s.align);  // + 1, so that the address one past the end is inside the block
  s.collect_waiting();
  Block* block = s.find_or_grow(rounded, stream, sharing, site);
  if (!block) {
    ++s.stats.retries;
    if (log_enabled(LogLevel::kInfo))
      log_message(LogLevel::kInfo, "runtime",
                  s.device.describe() + " is full (" + s.problem + "): freeing cached memory and trying again");
    s.release_cached(lock);
    block = s.find_or_grow(rounded, stream, sharing, site);
    if (!block && sharing == Sharing::kNone) block = s.free_blocks.best_fit_anywhere(rounded);
    if (!block) s.out_of_memory(bytes, stream, site);
  }
  s.take(block, rounded, bytes, stream, std::move(site));
  return reinterpret_cast<void*>(block->address());
}

void* Allocator::adopt(cl_mem memory, size_t bytes) {
  State& s = *state_;
  CallSite site = call_site();
  const std::lock_guard lock(s.mutex);
  auto slab = std::make_unique<Slab>(round_up(bytes + 1, s.align), kForeign, 0);
  slab->mem = retained(memory);
  const size_t all = slab->bytes;
  Block* block = s.placed(std::move(slab), site);
  if (!block) s.out_of_memory(bytes, 0, site);
  s.take(block, all, bytes, 0, std::move(site));
  block->written_outside = true;
  return reinterpret_cast<void*>(block->address());
}

void Allocator::free(void* address) noexcept {
  if (!address) return;
  std::vector<std::weak_ptr<Dependent>> dependents;
  state_->free_block(address, dependents);
  // storage_freed() may free memory, so it is called without the lock.
  for (const std::weak_ptr<Dependent>& dependent : dependents)
    if (const std::shared_ptr<Dependent> alive = dependent.lock()) alive->storage_freed();
}

void Allocator::State::free_block(const void* address, std::vector<std::weak_ptr<Dependent>>& dependents) noexcept {
  const std::lock_guard lock(mutex);
  Block* block = block_at(address);
  if (!block || block->requested == 0 || block->address() != reinterpret_cast<uintptr_t>(address)) return;
  dependents.swap(block->dependents);
  history.record(MemoryAction::kFreeRequested, block->address(), block->bytes, block->stream, nullptr);
  const bool small = block->slab->pool == kSmall;
  stats.blocks.decrease(small, 1);
  stats.allocated_bytes.decrease(small, static_cast<int64_t>(block->bytes));
  stats.requested_bytes.decrease(small, static_cast<int64_t>(block->requested));
  block->requested = 0;
  if (!wait_for_users(block)) give_back(block);
}

Location Allocator::resolve(const void* address) const {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  return s.location_of(s.live_block(address), address);
}

Location Allocator::use(const void* address, int stream) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  return s.use(address, stream);
}

std::vector<Location> Allocator::use(const std::vector<void*>& addresses, int stream) {
  State& s = *state_;
  std::vector<Location> locations;
  locations.reserve(addresses.size());
  const std::lock_guard lock(s.mutex);
  for (const void* address : addresses) locations.push_back(address ? s.use(address, stream) : Location{});
  return locations;
}

void Allocator::wrote(const void* address, int stream) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.wrote(address, stream);
}

void Allocator::wrote(const std::vector<void*>& addresses, const std::vector<int>& positions, int stream) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  for (const int i : positions)
    if (addresses[static_cast<size_t>(i)]) s.wrote(addresses[static_cast<size_t>(i)], stream);
}

void Allocator::attach(const void* address, const std::shared_ptr<Dependent>& dependent) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  auto& list = s.live_block(address).dependents;
  list.erase(std::remove_if(list.begin(), list.end(), [](const auto& other) { return other.expired(); }), list.end());
  list.push_back(dependent);
}

bool Allocator::owns(const void* address) const noexcept {
  return state_->range.contains(reinterpret_cast<uintptr_t>(address));
}

uint64_t Allocator::slabs_released() const noexcept { return state_->memory.released(); }

void Allocator::prefer_cuda() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.memory.prefer_cuda();
  s.range.for_each_slab([&](Slab* slab) {
    if (!slab->cuda && (slab->pool == kLarge || slab->pool == kOwn)) s.free_blocks.retire(slab);
  });
}

void Allocator::allow(const CudaDevice& peer) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.memory.allow(peer, s.range);
}

uint64_t Allocator::cuda_address(const void* address) const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const Slab& slab = *s.live_block(address).slab;
  return slab.cuda ? slab.cuda->address() + (reinterpret_cast<uintptr_t>(address) - slab.address) : 0;
}

void* Allocator::address_of_cuda(uint64_t cuda_address) const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  uintptr_t found = 0;
  s.range.for_each_slab([&](const Slab* slab) {
    if (slab->cuda && cuda_address - slab->cuda->address() < slab->bytes)
      found = slab->address + (cuda_address - slab->cuda->address());
  });
  void* address = reinterpret_cast<void*>(found);
  return found != 0 && s.block_at(address) ? address : nullptr;
}

void Allocator::expect_outside_writes(const void* address) {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.live_block(address).written_outside = true;
}

void Allocator::record_stream(const void* address, int stream) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  State::add_user(s.live_block(address), stream);
}

void Allocator::empty_cache() {
  std::unique_lock lock(state_->mutex);
  state_->release_cached(lock);
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

void Allocator::reset_peaks() {
  const std::lock_guard lock(state_->mutex);
  state_->stats.reset_peaks();
}

void Allocator::reset_accumulated() {
  const std::lock_guard lock(state_->mutex);
  state_->stats.reset_accumulated();
}

MemorySnapshot Allocator::snapshot() {
  CallSite site = call_site();
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.history.record(MemoryAction::kSnapshot, 0, 0, 0, std::move(site));
  return {segments_of(s.range), s.history.events()};
}

void Allocator::clear_history() {
  const std::lock_guard lock(state_->mutex);
  state_->history.clear();
}

void Allocator::set_fraction(double fraction) {
  const std::lock_guard lock(state_->mutex);
  state_->fraction = fraction;
}

double Allocator::fraction() const {
  const std::lock_guard lock(state_->mutex);
  return state_->fraction;
}

}  // namespace ocl::runtime
