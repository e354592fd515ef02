// csrc/schedule/batch.h: pass: independent small groups become one launch: weight packing, counters, optimizer updates, ordered
// sums of split weight gradients.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void batch(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
