// csrc/schedule/memory_plan.h: lifetimes of buffers -> offsets in one arena.
#pragma once

#include <cstdint>
#include <vector>

namespace ocl::schedule {

/// A buffer: the first and the last group that use it.
struct Interval {
  int first = 0, last = 0;
  int64_t size_bytes = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // bytes, per interval
  int64_t arena_bytes = 0;
};

/// Packs buffers whose lifetimes do not overlap into one arena. Pure: equal input gives equal offsets.
/// `alignment` in bytes, a power of two. Throws InternalError on a lifetime that ends before it begins.
MemoryPlan plan_memory(const std::vector<Interval>& intervals, int64_t alignment);

}  // namespace ocl::schedule
