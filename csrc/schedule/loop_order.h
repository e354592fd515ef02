// csrc/schedule/loop_order.h: pass: orders the loops of each group by the strides of its largest access, merges
// neighbouring loops and chooses a vector width.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void loop_order(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
