// csrc/schedule/placement.h: pass: decides where each buffer lives: in registers, in a tensor of the caller, in a new
// output, in another buffer's memory, or in the arena (with a lifetime for plan_memory).
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void place_buffers(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
