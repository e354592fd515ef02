// csrc/runtime/memory_history.h: who holds memory, and what the allocator did: for errors, snapshots and torch's visualiser.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ocl::runtime {

class AddressRange;

using PurposeText = std::shared_ptr<const std::string>;

/// What this thread allocates memory for, until the scope ends: "results of forward_0".
class MemoryPurpose {
 public:
  explicit MemoryPurpose(PurposeText text);
  ~MemoryPurpose();
  MemoryPurpose(const MemoryPurpose&) = delete;
  MemoryPurpose& operator=(const MemoryPurpose&) = delete;
  static const PurposeText& current();

 private:
  PurposeText previous_;
};

/// Where in the program something was allocated or freed. csrc/torch makes and reads them; this half only keeps them.
using CallSite = std::shared_ptr<void>;
using CallSiteHook = CallSite (*)();

enum class MemoryAction { kAlloc, kFreeRequested, kFreeCompleted, kSegmentAlloc, kSegmentFree, kOom, kSnapshot };

struct MemoryEvent {
  MemoryAction action = MemoryAction::kAlloc;
  uintptr_t address = 0;
  int64_t bytes = 0;
  int stream = 0;
  int64_t time_us = 0;      // unix
  int64_t device_free = 0;  // bytes; of kOom
  CallSite site;
};

enum class BlockState { kAllocated, kAwaitingFree, kInactive };

struct BlockInfo {
  uintptr_t address = 0;
  int64_t bytes = 0, requested = 0;
  BlockState state = BlockState::kInactive;
  PurposeText purpose;
  CallSite site;
};

/// A slab: memory that was taken from the device at once.
struct SegmentInfo {
  uintptr_t address = 0;
  int64_t bytes = 0;
  int stream = 0;
  bool small = false;
  CallSite site;
  std::vector<BlockInfo> blocks;  // they tile the segment
};

struct MemorySnapshot {
  std::vector<SegmentInfo> segments;
  std::vector<MemoryEvent> events;  // oldest first
};

/// What to keep of all devices' allocations.
struct HistorySettings {
  bool sites = false;      // the call site of each allocation
  size_t most_events = 0;  // the latest of them are kept; 0: none
  CallSiteHook hook = nullptr;
};
void set_memory_history(const HistorySettings& settings);

/// Now, if call sites are kept; else null. Called without locks, because it may need Python's.
CallSite call_site();

/// The latest events of one device. The allocator's mutex guards it.
class MemoryHistory {
 public:
  void record(MemoryAction action, uintptr_t address, size_t bytes, int stream, CallSite site, int64_t device_free = 0);
  std::vector<MemoryEvent> events() const;
  void clear() { events_.clear(), next_ = 0; }

 private:
  std::vector<MemoryEvent> events_;  // a ring once it is full
  size_t next_ = 0;                  // the oldest event of a full ring
};

std::vector<SegmentInfo> segments_of(const AddressRange& range);

/// "1.20 GiB in 24 blocks: results of forward_0; 300.00 MiB in 161 blocks: other tensors": the purposes that hold most.
std::string largest_holders(const AddressRange& range);

/// "1.20 GiB", "300.00 MiB".
std::string size_text(int64_t bytes);

}  // namespace ocl::runtime
