// csrc/schedule/memory_plan.h: plans the arena: offsets for buffers with lifetimes.
#pragma once

#include <cstdint>
#include <vector>

namespace ocl::schedule {

/// The lifetime of a buffer: the first and the last group that use it.
struct Interval {
  int first = 0, last = 0;
  int64_t size_bytes = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // Offset of each interval in bytes.
  int64_t arena_bytes = 0;
};

/// Packs buffers into one arena; buffers whose lifetimes overlap do not share memory. Equal input gives equal offsets.
/// `alignment` is a power of two in bytes. InternalError if a lifetime ends before it begins. The result is verified.
MemoryPlan plan_memory(const std::vector<Interval>& intervals, int64_t alignment);
/// Throws InternalError if two intervals that are alive at the same time overlap, or if an interval is outside the
/// arena.
void verify(const MemoryPlan& plan, const std::vector<Interval>& intervals);

}  // namespace ocl::schedule
