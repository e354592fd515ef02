// csrc/runtime/record/memory_history.h: records what memory is used for and what the allocator did. Errors, snapshots and
// torch's memory viewer show it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ocl::runtime {

using PurposeText = std::shared_ptr<const std::string>;

/// Sets what this thread allocates memory for until the end of the scope, such as "results of forward_0".
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

/// The place in the program where memory was allocated or freed. csrc/torch makes and reads it; here it is only stored.
using CallSite = std::shared_ptr<void>;
using CallSiteHook = CallSite (*)();

enum class MemoryAction { kAlloc, kFreeRequested, kFreeCompleted, kSegmentAlloc, kSegmentFree, kOom, kSnapshot };

struct MemoryEvent {
  MemoryAction action = MemoryAction::kAlloc;
  uintptr_t address = 0;
  int64_t bytes = 0;
  int stream = 0;
  int64_t time_us = 0;      // Unix time in microseconds.
  int64_t device_free = 0;  // kOom: bytes that were left.
  CallSite site;
  PurposeText purpose;  // kAlloc: what the memory is for.
};

enum class BlockState { kAllocated, kAwaitingFree, kInactive };

struct BlockInfo {
  uintptr_t address = 0;
  int64_t bytes = 0, requested = 0;
  BlockState state = BlockState::kInactive;
  PurposeText purpose;
  CallSite site;
};

/// A slab: memory that was allocated from the device in one piece.
struct SegmentInfo {
  uintptr_t address = 0;
  int64_t bytes = 0;
  int stream = 0;
  bool small = false;
  CallSite site;
  std::vector<BlockInfo> blocks;  // The blocks cover the segment without gaps.
};

struct MemorySnapshot {
  std::vector<SegmentInfo> segments;
  std::vector<MemoryEvent> events;  // Oldest first.
};

/// Settings of what is recorded of the allocations of all devices.
struct HistorySettings {
  bool sites = false;      // Record the call site of each allocation.
  size_t most_events = 0;  // Keep this many of the latest events. 0: none.
  CallSiteHook hook = nullptr;
};
void set_memory_history(const HistorySettings& settings);

/// Returns the current call site if call sites are recorded, otherwise null. Call it without holding locks, because it may need
/// Python's lock.
CallSite call_site();

/// The latest events of one device. Guarded by the allocator's mutex.
class MemoryHistory {
 public:
  void record(MemoryAction action, uintptr_t address, size_t bytes, int stream, CallSite site, int64_t device_free = 0);
  std::vector<MemoryEvent> events() const;
  void clear() { events_.clear(), next_ = 0; }

 private:
  std::vector<MemoryEvent> events_;  // Used as a ring when full.
  size_t next_ = 0;                  // Index of the oldest event in a full ring.
};

/// Returns a size as text, such as "1.20 GiB" or "300.00 MiB".
std::string size_text(int64_t bytes);

}  // namespace ocl::runtime
