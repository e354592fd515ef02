// csrc/runtime/allocator.cpp: best fit with splitting and coalescing, inside slabs that have addresses of their own.
//
//   reserved range   | unit 0 | unit 1 | unit 2 | ...        64 MiB of addresses each; a slab begins at a unit
//   slab             | block  | free | block | block | free |   one cl_mem; blocks tile it without gaps
//   block            | requested bytes | 1 or more bytes of padding |
#include "csrc/runtime/allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "csrc/runtime/device.h"
#include "csrc/runtime/queue.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kUnitBytes = 64 * kMiB;         // of addresses, not of memory
constexpr size_t kRangeBytes = size_t{1} << 40;  // of addresses per device
constexpr size_t kSmallestRangeBytes = size_t{1} << 34;
constexpr size_t kSmallLimit = kMiB;       // below: blocks of small slabs
constexpr size_t kLargeLimit = 32 * kMiB;  // above: a slab of its own
constexpr size_t kSmallSlabBytes = 32 * kMiB;
constexpr size_t kLargeSlabBytes = 64 * kMiB;  // the first; later ones grow with what is reserved
constexpr size_t kLargestSlabBytes = 512 * kMiB;
constexpr size_t kOwnSlabStep = 2 * kMiB;  // a huge page

size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

/// Which slabs a request is carved from. Requests of different magnitude do not share slabs, or a small tensor would keep a
/// large block from being reused or given back.
enum Pool { kSmall, kLarge, kOwn, kPools };

Pool pool_of(size_t bytes) { return bytes < kSmallLimit ? kSmall : bytes <= kLargeLimit ? kLarge : kOwn; }

struct Slab;

struct Block {
  Slab* slab = nullptr;
  size_t offset = 0, bytes = 0, requested = 0;
  bool free = true;
  Block *previous = nullptr, *next = nullptr;  // neighbours in the slab
  std::vector<int> streams;                    // other streams that use it
  uint64_t version = 0;
  std::vector<std::weak_ptr<Dependent>> dependents;
};

struct Slab {
  MemHandle mem;
  std::byte* host = nullptr;  // memory of ours under `mem`
  uintptr_t address = 0;
  size_t bytes = 0;
  Pool pool = kSmall;
  std::map<size_t, Block*> blocks;  // by offset, free ones too
};

struct BySize {
  using is_transparent = void;
  bool operator()(const Block* a, size_t bytes) const { return a->bytes < bytes; }
  bool operator()(const Block* a, const Block* b) const {
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->slab->address != b->slab->address) return a->slab->address < b->slab->address;
    return a->offset < b->offset;
  }
};

/// A freed block that other streams may still use.
struct Waiting {
  Block* block;
  std::vector<EventHandle> events;
  bool done() const {
    for (const EventHandle& event : events) {
      cl_int status = CL_COMPLETE;
      clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
      if (status > CL_COMPLETE) return false;
    }
    return true;
  }
};

struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};
  Device* device = nullptr;
};
constexpr size_t kMaxRanges = 64;
std::array<Range, kMaxRanges> g_ranges;
std::atomic<size_t> g_range_count{0};
std::mutex g_range_mutex;

std::string size_text(int64_t bytes) {
  char text[64];
  if (bytes >= int64_t{1} << 30)
    std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  else
    std::snprintf(text, sizeof(text), "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace

Device* device_of(const void* address) noexcept {
  const auto value = reinterpret_cast<uintptr_t>(address);
  const size_t count = g_range_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i)
    if (value >= g_ranges[i].begin.load(std::memory_order_relaxed) && value < g_ranges[i].end.load(std::memory_order_relaxed))
      return g_ranges[i].device;
  return nullptr;
}

struct Allocator::State {
  explicit State(Device& device_) : device(device_) {
    align = static_cast<size_t>(device.caps().base_align_bytes);
    for (range_bytes = kRangeBytes; range_bytes >= kSmallestRangeBytes; range_bytes /= 2)
      if ((range = os::reserve_addresses(range_bytes + kUnitBytes))) break;
    if (!range)
      fail(ErrorKind::kOutOfMemory,
           "no addresses could be reserved for " + device.describe() + "; raise the limit on virtual memory (ulimit -v)");
    base = round_up(reinterpret_cast<uintptr_t>(range), kUnitBytes);
    units = std::vector<std::atomic<Slab*>>(range_bytes / kUnitBytes);
    host_slabs = device.caps().is_cpu && host_memory_is_shared();
    std::lock_guard lock(g_range_mutex);
    const size_t index = g_range_count.load();
    if (index < kMaxRanges) {
      g_ranges[index].device = &device;
      g_ranges[index].begin.store(base);
      g_ranges[index].end.store(base + range_bytes);
      g_range_count.store(index + 1, std::memory_order_release);
    }
  }

  ~State() {
    std::lock_guard lock(g_range_mutex);
    for (Range& entry : g_ranges)
      if (entry.begin.load() == base) entry.end.store(entry.begin.load());
    for (Pool pool : {kSmall, kLarge, kOwn}) free_blocks[pool].clear();
    for (std::atomic<Slab*>& unit : units) {
      Slab* slab = unit.load();
      if (slab && slab->address == base + static_cast<size_t>(&unit - units.data()) * kUnitBytes) destroy(slab);
    }
    os::release_addresses(range, range_bytes + kUnitBytes);
  }

  /// Whether a buffer over host memory really is that memory: asked once, by writing through the queue and looking.
  bool host_memory_is_shared() {
    const size_t bytes = 4096;
    void* pages = os::allocate_pages(bytes);
    if (!pages) return false;
    cl_int status = CL_SUCCESS;
    bool shared = false;
    {
      MemHandle mem(clCreateBuffer(device.context(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, pages, &status));
      if (status == CL_SUCCESS) {
        const uint64_t sent = 0x5a17c0de12345678ULL;
        Queue& queue = device.queue();
        queue.write(mem.get(), 64, &sent, sizeof(sent), true);
        queue.finish();
        shared = std::memcmp(static_cast<std::byte*>(pages) + 64, &sent, sizeof(sent)) == 0;
      }
    }
    os::free_pages(pages, bytes);
    return shared;
  }

  Slab* slab_at(uintptr_t address) const noexcept {
    if (address - base >= range_bytes) return nullptr;
    Slab* slab = units[(address - base) / kUnitBytes].load(std::memory_order_acquire);
    return slab && address - slab->address < slab->bytes ? slab : nullptr;
  }

  /// The live block at or around `address`; nullptr if there is none.
  Block* block_at(uintptr_t address) const noexcept {
    Slab* slab = slab_at(address);
    if (!slab) return nullptr;
    auto row = slab->blocks.upper_bound(address - slab->address);
    if (row == slab->blocks.begin()) return nullptr;
    Block* block = std::prev(row)->second;
    return block->free ? nullptr : block;
  }

  size_t place(size_t bytes) {  // index of the first of enough consecutive free units, or units.size()
    const size_t wanted = (bytes + kUnitBytes - 1) / kUnitBytes;
    for (int round = 0; round < 2; ++round) {  // onward from the last place: an address is reused as late as possible
      const size_t begin = round == 0 ? next_unit : 0, end = units.size();
      size_t run = 0;
      for (size_t i = begin; i < end; ++i) {
        run = units[i].load(std::memory_order_relaxed) ? 0 : run + 1;
        if (run == wanted) return i + 1 - wanted;
      }
    }
    return units.size();
  }

  /// A new slab as one free block, or nullptr with `problem`.
  Block* new_slab(size_t bytes, Pool pool) {
    const Caps& caps = device.caps();
    if (static_cast<int64_t>(bytes) > caps.max_alloc_bytes) {
      problem = "the largest buffer of this device is " + size_text(caps.max_alloc_bytes);
      return nullptr;
    }
    if (stats.reserved + static_cast<int64_t>(bytes) > caps.global_bytes) {
      problem = "the device has " + size_text(caps.global_bytes);
      return nullptr;
    }
    const size_t unit = place(bytes);
    if (unit == units.size()) {
      problem = "its " + size_text(static_cast<int64_t>(range_bytes)) + " of addresses are in use";
      return nullptr;
    }
    auto slab = std::make_unique<Slab>();
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    if (host_slabs) {
      slab->host = static_cast<std::byte*>(os::allocate_pages(bytes));
      if (!slab->host) {
        problem = "the system has no memory left";
        return nullptr;
      }
      flags |= CL_MEM_USE_HOST_PTR;
    } else if (caps.unified) {
      flags |= CL_MEM_ALLOC_HOST_PTR;
    }
    cl_int status = CL_SUCCESS;
    slab->mem = MemHandle(clCreateBuffer(device.context(), flags, bytes, slab->host, &status));
    slab->bytes = bytes;
    if (status == CL_SUCCESS && !host_slabs && !caps.unified) status = commit(*slab);
    if (status != CL_SUCCESS) {
      problem = std::string("clCreateBuffer: ") + status_name(status);
      slab->mem = MemHandle();
      if (slab->host) os::free_pages(slab->host, bytes);
      return nullptr;
    }
    slab->address = base + unit * kUnitBytes;
    slab->pool = pool;
    auto* block = new Block;
    block->slab = slab.get();
    block->bytes = bytes;
    slab->blocks.emplace(0, block);
    free_blocks[pool].insert(block);
    next_unit = unit + (bytes + kUnitBytes - 1) / kUnitBytes;
    for (size_t i = unit; i < next_unit; ++i) units[i].store(slab.get(), std::memory_order_release);
    stats.reserved += static_cast<int64_t>(bytes);
    stats.reserved_peak = std::max(stats.reserved_peak, stats.reserved);
    slab.release();  // owned through `units`
    return block;
  }

  /// Drivers of discrete devices reserve memory at the first use of a buffer, and fail there. Using it here makes a full device
  /// an error of this call, where it can be handled.
  cl_int commit(const Slab& slab) {
    const uint32_t zero = 0;
    cl_event event = nullptr;
    const cl_int status =
        clEnqueueFillBuffer(device.queue().get(), slab.mem.get(), &zero, sizeof(zero), 0, sizeof(zero), 0, nullptr, &event);
    if (status != CL_SUCCESS) return status;
    EventHandle handle(event);
    return CL_SUCCESS;
  }

  /// Needs that nothing uses the slab any more.
  void destroy(Slab* slab) noexcept {
    const size_t unit = (slab->address - base) / kUnitBytes;
    for (size_t i = unit; i < unit + (slab->bytes + kUnitBytes - 1) / kUnitBytes; ++i)
      units[i].store(nullptr, std::memory_order_release);
    for (const auto& [offset, block] : slab->blocks) {
      if (block->free) free_blocks[slab->pool].erase(block);
      delete block;
    }
    slab->mem = MemHandle();
    if (slab->host) os::free_pages(slab->host, slab->bytes);
    stats.reserved -= static_cast<int64_t>(slab->bytes);
    delete slab;
  }

  void release_cached() {
    std::vector<Slab*> unused;
    for (const auto& blocks : free_blocks)
      for (Block* block : blocks)
        if (block->bytes == block->slab->bytes) unused.push_back(block->slab);
    for (Slab* slab : unused) destroy(slab);
  }

  Block* best_fit(Pool pool, size_t bytes) {
    const auto row = free_blocks[pool].lower_bound(bytes);
    return row == free_blocks[pool].end() ? nullptr : *row;
  }

  size_t slab_bytes(Pool pool, size_t bytes) const {
    const auto limit = static_cast<size_t>(std::max<int64_t>(device.caps().max_alloc_bytes, 0));
    const size_t share = round_up(static_cast<size_t>(device.caps().global_bytes) / 16, kMiB);  // small devices get small slabs
    size_t slab = kSmallSlabBytes;
    if (pool == kOwn) return std::min(round_up(bytes, kOwnSlabStep), std::max(limit, bytes));
    if (pool == kLarge)
      slab = std::clamp(round_up(static_cast<size_t>(stats.reserved) / 4, kLargeSlabBytes), kLargeSlabBytes, kLargestSlabBytes);
    return std::max(std::min({slab, share, limit}), round_up(bytes, kMiB));
  }

  Block* find_or_grow(size_t bytes) {
    const Pool pool = pool_of(bytes);
    if (Block* block = best_fit(pool, bytes)) return block;
    if (Block* block = new_slab(slab_bytes(pool, bytes), pool)) return block;
    return pool == kOwn ? nullptr : new_slab(round_up(bytes, kMiB), pool);  // a nearly full device: no more than needed
  }

  /// Makes `block` live with `bytes` of it; the rest stays free.
  void take(Block* block, size_t bytes, size_t requested) {
    const Pool pool = block->slab->pool;
    free_blocks[pool].erase(block);
    const size_t rest = block->bytes - bytes;
    if (rest >= (pool == kSmall ? align : kSmallLimit / 16)) {
      auto* tail = new Block;
      tail->slab = block->slab;
      tail->offset = block->offset + bytes;
      tail->bytes = rest;
      tail->previous = block;
      tail->next = block->next;
      if (tail->next) tail->next->previous = tail;
      block->next = tail;
      block->bytes = bytes;
      block->slab->blocks.emplace(tail->offset, tail);
      free_blocks[pool].insert(tail);
    }
    block->free = false;
    block->requested = requested;
    block->version = ++last_version;
    stats.allocated += static_cast<int64_t>(block->bytes);
    stats.allocated_peak = std::max(stats.allocated_peak, stats.allocated);
    ++stats.allocations;
  }

  /// Joins `block` with its free neighbours and offers it again.
  void give_back(Block* block) {
    block->free = true;
    auto& blocks = free_blocks[block->slab->pool];
    const auto absorb = [&](Block* left, Block* right) {
      left->bytes += right->bytes;
      left->next = right->next;
      if (right->next) right->next->previous = left;
      left->slab->blocks.erase(right->offset);
      delete right;
    };
    if (Block* next = block->next; next && next->free) {
      blocks.erase(next);
      absorb(block, next);
    }
    if (Block* previous = block->previous; previous && previous->free) {
      blocks.erase(previous);
      absorb(previous, block);
      block = previous;
    }
    blocks.insert(block);
  }

  /// Frees the block that begins at `address`, if there is one, and hands out who depends on it.
  void free_block(void* address, std::vector<std::weak_ptr<Dependent>>& dependents) noexcept;

  void collect_waiting() {
    while (!waiting.empty() && waiting.front().done()) {
      give_back(waiting.front().block);
      waiting.pop_front();
    }
  }

  [[noreturn]] void out_of_memory(size_t requested) {
    ++stats.failures;
    fail(ErrorKind::kOutOfMemory,
         "out of memory on " + device.describe() + ": tried to allocate " + size_text(static_cast<int64_t>(requested)) + "; " +
             size_text(stats.allocated) + " are allocated, " + size_text(stats.reserved) + " reserved, of " +
             size_text(device.caps().global_bytes) + " in total (" + problem +
             ")\n  do: use a smaller batch, delete tensors you no longer need, or wrap inference in torch.no_grad(); " +
             "torch.ocl.memory_allocated() tells where memory goes");
  }

  Device& device;
  uint64_t last_version = 0;
  size_t align = 128;
  void* range = nullptr;
  size_t range_bytes = 0;
  uintptr_t base = 0;
  std::vector<std::atomic<Slab*>> units;
  size_t next_unit = 0;
  bool host_slabs = false;
  std::string problem;
  MemoryStats stats;
  std::array<std::set<Block*, BySize>, kPools> free_blocks;
  std::deque<Waiting> waiting;
  mutable std::mutex mutex;
};

Allocator::Allocator(Device& device) : state_(std::make_unique<State>(device)) {}
Allocator::~Allocator() = default;

void* Allocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  State& s = *state_;
  if (bytes > kRangeBytes) {
    std::lock_guard lock(s.mutex);
    s.problem = "more than any device has";
    s.out_of_memory(bytes);
  }
  const size_t rounded = round_up(bytes + 1, s.align);  // + 1: one past the end is inside
  std::lock_guard lock(s.mutex);
  if (!s.waiting.empty()) s.collect_waiting();
  Block* block = s.find_or_grow(rounded);
  if (!block) {
    ++s.stats.retries;
    if (log_enabled(LogLevel::kInfo))
      log_message(LogLevel::kInfo, "runtime",
                  s.device.describe() + " is full (" + s.problem + "): freeing cached memory and trying again");
    s.device.synchronize();
    s.collect_waiting();
    s.release_cached();
    block = s.find_or_grow(rounded);
    for (int pool = 0; !block && pool < kPools; ++pool) block = s.best_fit(static_cast<Pool>(pool), rounded);
    if (!block) s.out_of_memory(bytes);
  }
  s.take(block, rounded, bytes);
  return reinterpret_cast<void*>(block->slab->address + block->offset);
}

void Allocator::free(void* address) noexcept {
  if (!address) return;
  State& s = *state_;
  std::vector<std::weak_ptr<Dependent>> dependents;
  s.free_block(address, dependents);
  for (const std::weak_ptr<Dependent>& dependent : dependents)  // they free memory of their own
    if (const std::shared_ptr<Dependent> alive = dependent.lock()) alive->storage_freed();
}

void Allocator::State::free_block(void* address, std::vector<std::weak_ptr<Dependent>>& dependents) noexcept {
  State& s = *this;
  std::lock_guard lock(s.mutex);
  Block* block = s.block_at(reinterpret_cast<uintptr_t>(address));
  if (!block || block->slab->address + block->offset != reinterpret_cast<uintptr_t>(address)) return;
  dependents.swap(block->dependents);
  s.stats.allocated -= static_cast<int64_t>(block->bytes);
  ++s.stats.frees;
  if (!block->streams.empty() && !os::is_forked_child()) {
    try {
      Waiting waiting{block, {}};
      for (int stream : block->streams) waiting.events.push_back(s.device.queue(stream).marker());
      block->streams.clear();
      block->requested = 0;
      s.waiting.push_back(std::move(waiting));
      return;
    } catch (const std::exception&) {  // the queue is broken, and its next finish() says so; nothing of it runs any more
    }
  }
  block->streams.clear();
  s.give_back(block);
}

Location Allocator::resolve(const void* address) const {
  const State& s = *state_;
  const auto value = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(s.mutex);
  const Block* block = s.block_at(value);
  OCL_ASSERT(block, "address is not of a live allocation of " + s.device.describe());
  Location location;
  location.mem = block->slab->mem.get();
  location.offset_bytes = value - block->slab->address;
  const size_t end = block->offset + block->requested;
  location.remaining_bytes = end > location.offset_bytes ? end - location.offset_bytes : 0;
  if (block->slab->host) location.host = block->slab->host + location.offset_bytes;
  location.version = block->version;
  return location;
}

Location Allocator::locate(const void* address) const {
  const State& s = *state_;
  const auto value = reinterpret_cast<uintptr_t>(address);
  const Slab* slab = s.slab_at(value);
  OCL_ASSERT(slab, "address lies in no slab of " + s.device.describe());
  const size_t offset = value - slab->address;
  return {slab->mem.get(), offset, slab->bytes - offset, slab->host ? slab->host + offset : nullptr, 0};
}

void Allocator::wrote(const void* address) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (Block* block = s.block_at(reinterpret_cast<uintptr_t>(address))) block->version = ++s.last_version;
}

void Allocator::attach(const void* address, const std::shared_ptr<Dependent>& dependent) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  Block* block = s.block_at(reinterpret_cast<uintptr_t>(address));
  OCL_ASSERT(block, "address is not of a live allocation of " + s.device.describe());
  auto& list = block->dependents;
  list.erase(std::remove_if(list.begin(), list.end(), [](const auto& other) { return other.expired(); }), list.end());
  list.push_back(dependent);
}

bool Allocator::owns(const void* address) const noexcept {
  const auto value = reinterpret_cast<uintptr_t>(address);
  return value - state_->base < state_->range_bytes;
}

void Allocator::record_stream(const void* address, int stream) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  Block* block = s.block_at(reinterpret_cast<uintptr_t>(address));
  OCL_ASSERT(block, "address is not of a live allocation of " + s.device.describe());
  if (std::find(block->streams.begin(), block->streams.end(), stream) == block->streams.end()) block->streams.push_back(stream);
}

void Allocator::empty_cache() {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.device.synchronize();
  s.collect_waiting();
  s.release_cached();
}

MemoryStats Allocator::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->stats;
}

void Allocator::reset_peaks() {
  std::lock_guard lock(state_->mutex);
  state_->stats.allocated_peak = state_->stats.allocated;
  state_->stats.reserved_peak = state_->stats.reserved;
}

}  // namespace ocl::runtime
