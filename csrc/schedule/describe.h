// csrc/schedule/describe.h: what a schedule and its groups do, in numbers and words.
#pragma once

#include <string>

#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

/// The bytes that a group reads and writes, and its floating-point operations, as expressions of the size symbols.
struct Work {
  ir::IndexExpr bytes, flops;
};
Work work_of(const Schedule& schedule, const Group& group);

/// The sizes that summarise what a group computes, for its title:
///  product      [batch,] rows, columns, depth
///  convolution  the forward output "by" the filter's channels and window, also for gradients
///  attention    the queries "to" the keys
///  loops        their sizes "over" the reduced sizes
struct Extent {
  ir::Shape sizes;
  std::string word;  // The word between `sizes` and `others`.
  ir::Shape others;
};
Extent extent_of(const Schedule& schedule, const Group& group);

/// Returns the schedule as text: groups, phases, placements.
std::string str(const Schedule& schedule);

}  // namespace ocl::schedule
