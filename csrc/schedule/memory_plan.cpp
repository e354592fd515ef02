// csrc/schedule/memory_plan.cpp: assigns offsets in one arena to buffers with lifetimes, by best fit, largest first.
#include "csrc/schedule/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "csrc/schedule/verify.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

MemoryPlan plan_memory(const std::vector<Interval>& intervals, int64_t alignment) {
  OCL_ASSERT(alignment > 0 && (alignment & (alignment - 1)) == 0,
             "alignment must be a power of two, not " + std::to_string(alignment));
  MemoryPlan plan;
  plan.offsets.assign(intervals.size(), 0);
  const auto rounded = [&](int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  std::vector<int> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  for (const Interval& interval : intervals)
    OCL_ASSERT(interval.last >= interval.first, "a lifetime ends at " + std::to_string(interval.last) +
                                                    " before it begins at " + std::to_string(interval.first));
  // Place large buffers first. Small ones then fill the gaps.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return intervals[a].size_bytes > intervals[b].size_bytes; });

  struct Block {
    int64_t begin, end;
    int first, last;
  };
  std::vector<Block> placed;  // Sorted by `begin`.
  for (const int index : order) {
    const Interval& interval = intervals[index];
    const int64_t size = rounded(interval.size_bytes);
    if (size <= 0) continue;
    int64_t best = -1, best_gap = INT64_MAX, cursor = 0;
    for (const Block& block : placed) {
      // The lifetimes do not overlap.
      if (block.last < interval.first || interval.last < block.first) continue;
      const int64_t gap = block.begin - cursor;
      if (gap >= size && gap < best_gap) {
        best = cursor;
        best_gap = gap;
      }
      cursor = std::max(cursor, block.end);
    }
    if (best < 0) best = cursor;
    plan.offsets[index] = best;
    plan.arena_bytes = std::max(plan.arena_bytes, best + size);
    const Block block{best, best + size, interval.first, interval.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), block, [](const Block& a, const Block& b) { return a.begin < b.begin; }),
        block);
  }
  verify(plan, intervals);
  return plan;
}

}  // namespace ocl::schedule
