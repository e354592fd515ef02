// csrc/schedule/batch.h: pass: independent small pointwise groups become one launch: weight packing, counters, optimizer
// updates.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void batch(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
