// tests/cpp/test_schedule_memory_plan.cpp: buffers whose lifetimes overlap never share memory; others do.
#include <doctest/doctest.h>

#include <random>

#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/schedule.h"
#include "csrc/support/error.h"

using namespace ocl::schedule;

TEST_CASE("a chain needs the memory of two") {
  const MemoryPlan plan = plan_memory({{0, 1, 1000}, {1, 2, 1000}, {2, 3, 1000}}, 256);
  CHECK(plan.arena_bytes == 2048);
  CHECK(plan.offsets[0] == plan.offsets[2]);
}

TEST_CASE("empty buffers need nothing, and a lifetime must not end before it begins") {
  CHECK(plan_memory({}, 128).arena_bytes == 0);
  CHECK(plan_memory({{0, 5, 0}}, 128).arena_bytes == 0);
  CHECK_THROWS_AS(plan_memory({{3, 2, 4}}, 128), ocl::Error);
}

TEST_CASE("random lifetimes never overlap in time and space") {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::vector<Interval> intervals(random() % 40);
    int64_t total = 0;
    for (Interval& interval : intervals) {
      interval.first = static_cast<int>(random() % 20);
      interval.last = interval.first + static_cast<int>(random() % 8);
      interval.size_bytes = random() % 3 == 0 ? random() % 10 : random() % 5000;
      total += (interval.size_bytes + 63) / 64 * 64;
    }
    const MemoryPlan plan = plan_memory(intervals, 64);
    CHECK(plan.arena_bytes <= total);
    for (size_t a = 0; a < intervals.size(); ++a) {
      CHECK(plan.offsets[a] % 64 == 0);
      CHECK(plan.offsets[a] + intervals[a].size_bytes <= plan.arena_bytes);
      for (size_t b = 0; b < a; ++b) {
        const bool same_time = intervals[a].first <= intervals[b].last && intervals[b].first <= intervals[a].last;
        const bool same_place = plan.offsets[a] < plan.offsets[b] + intervals[b].size_bytes &&
                                plan.offsets[b] < plan.offsets[a] + intervals[a].size_bytes;
        CHECK_FALSE((same_time && same_place));
      }
    }
  }
}
