// csrc/schedule/placement.h: pass: where each buffer lives: registers, the caller's tensors, fresh outputs, another buffer's
// memory, or the arena, with a lifetime for `plan_memory`.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void place_buffers(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
