// csrc/runtime/memory/address_range.cpp: reserves addresses and assigns them to slabs; see address_range.h.
#include "csrc/runtime/memory/address_range.h"

#include <array>
#include <mutex>

#include "csrc/runtime/memory/slab.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr size_t kLeastBytes = size_t{1} << 34;

struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};
  int device = -1;
};
constexpr size_t kMaxRanges = 64;
std::array<Range, kMaxRanges> g_ranges;
std::atomic<size_t> g_range_count{0};
std::mutex g_range_mutex;

}  // namespace

int device_index_of(const void* address) noexcept {
  const auto value = reinterpret_cast<uintptr_t>(address);
  const size_t count = g_range_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i)
    if (value >= g_ranges[i].begin.load(std::memory_order_relaxed) && value < g_ranges[i].end.load(std::memory_order_relaxed))
      return g_ranges[i].device;
  return -1;
}

AddressRange::AddressRange(const DeviceInfo& device) {
  for (bytes_ = kMaxBytes; bytes_ >= kLeastBytes; bytes_ /= 2)
    if ((reserved_ = os::reserve_addresses(bytes_ + kChunkBytes))) break;
  if (!reserved_)
    fail(ErrorKind::kOutOfMemory,
         "no addresses could be reserved for " + device.describe() + "; raise the limit on virtual memory (ulimit -v)");
  base_ = chunk_count(reinterpret_cast<uintptr_t>(reserved_)) * kChunkBytes;
  chunks_ = std::vector<std::atomic<Slab*>>(bytes_ / kChunkBytes);
  const std::lock_guard lock(g_range_mutex);
  const size_t index = g_range_count.load();
  if (index == kMaxRanges) return;
  g_ranges[index].device = device.index;
  g_ranges[index].begin.store(base_);
  g_ranges[index].end.store(base_ + bytes_);
  g_range_count.store(index + 1, std::memory_order_release);
}

AddressRange::~AddressRange() {
  const std::lock_guard lock(g_range_mutex);
  for (Range& entry : g_ranges)
    if (entry.begin.load() == base_) entry.end.store(entry.begin.load());
  os::release_addresses(reserved_, bytes_ + kChunkBytes);
}

bool AddressRange::begins_at(const Slab* slab, size_t chunk) const noexcept {
  return slab->address == base_ + chunk * kChunkBytes;
}

Slab* AddressRange::slab_at(uintptr_t address) const noexcept {
  if (!contains(address)) return nullptr;
  Slab* slab = chunks_[(address - base_) / kChunkBytes].load(std::memory_order_acquire);
  return slab && address - slab->address < slab->bytes ? slab : nullptr;
}

bool AddressRange::place(Slab* slab) {
  const size_t wanted = chunk_count(slab->bytes);
  for (const size_t begin : {next_, size_t{0}}) {
    size_t run = 0;
    for (size_t i = begin; i < chunks_.size(); ++i) {
      run = chunks_[i].load(std::memory_order_relaxed) ? 0 : run + 1;
      if (run < wanted) continue;
      const size_t first = i + 1 - wanted;
      slab->address = base_ + first * kChunkBytes;
      for (size_t k = first; k <= i; ++k) chunks_[k].store(slab, std::memory_order_release);
      next_ = i + 1;
      return true;
    }
  }
  return false;
}

void AddressRange::remove(const Slab* slab) noexcept {
  const size_t first = (slab->address - base_) / kChunkBytes;
  for (size_t i = first; i < first + chunk_count(slab->bytes); ++i) chunks_[i].store(nullptr, std::memory_order_release);
}

}  // namespace ocl::runtime
