// csrc/schedule/memory_plan.cpp: assigns offsets in one arena to buffers with lifetimes, by best fit, largest first.
#include "csrc/schedule/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

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

void verify(const MemoryPlan& plan, const std::vector<Interval>& intervals) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return intervals[a].first < intervals[b].first; });
  std::map<int64_t, size_t> alive;           // Offset -> interval.
  std::set<std::pair<int, int64_t>> ending;  // Last launch, offset.
  for (const size_t i : order) {
    const int64_t begin = plan.offsets[i], end = begin + intervals[i].size_bytes;
    if (intervals[i].size_bytes <= 0) continue;
    while (!ending.empty() && ending.begin()->first < intervals[i].first) {
      alive.erase(ending.begin()->second);
      ending.erase(ending.begin());
    }
    const auto next = alive.lower_bound(begin);
    const bool overlaps_next = next != alive.end() && next->first < end;
    const bool overlaps_previous =
        next != alive.begin() && std::prev(next)->first + intervals[std::prev(next)->second].size_bytes > begin;
    if (begin < 0 || end > plan.arena_bytes || overlaps_next || overlaps_previous)
      fail(ErrorKind::kInternal, "the memory plan gives interval " + std::to_string(i) + " the bytes " + std::to_string(begin) +
                                     " to " + std::to_string(end) +
                                     ", which another interval has at the same time or the arena has not");
    alive.emplace(begin, i);
    ending.emplace(intervals[i].last, begin);
  }
}

}  // namespace ocl::schedule
