// csrc/schedule/verify.h: checks a schedule after nodes are grouped, and after buffers have memory.
#pragma once

#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

enum class ScheduleLevel : uint8_t {
  kGrouped,  // After fuse: every node is in one launch, after what it depends on.
  kPlaced,   // After place_buffers: also, everything that one launch passes to another is in memory.
};

/// Throws InternalError that names the broken rule and the group or buffer, with the schedule's text. Takes time in
/// proportion to the schedule's size.
void verify(const Schedule& schedule, ScheduleLevel level);

}  // namespace ocl::schedule
