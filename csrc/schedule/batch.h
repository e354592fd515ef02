// csrc/schedule/batch.h: pass: combines independent small groups into one launch. Examples are weight packing,
// counters, optimizer updates, and the final sums of split weight gradients.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void batch(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
