// csrc/schedule/linearize.h: pass: the final launch order: every dependence kept, and little memory alive at a time.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void linearize(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
