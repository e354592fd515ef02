// csrc/schedule/join_gradients.h: pass: computes the gradients of an attention in one kernel where that is faster. Scores and
// their gradients are then computed once.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void join_gradients(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
