// csrc/schedule/verify.h: what holds of a schedule once nodes are grouped, and once buffers have memory.
#pragma once

#include "csrc/schedule/memory_plan.h"
#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

enum class ScheduleLevel : uint8_t {
  kGrouped,  // after fuse: every node is launched once, after what it depends on
  kPlaced,   // after place_buffers: also, what one launch passes to another has memory
};

/// Throws InternalError that names the rule and the group or buffer that breaks it, with the schedule's text. Takes time in
/// proportion to the schedule's size.
void verify(const Schedule& schedule, ScheduleLevel level);

/// Throws InternalError if two intervals that are alive at the same time overlap, or one leaves the arena.
void verify(const MemoryPlan& plan, const std::vector<Interval>& intervals);

}  // namespace ocl::schedule
