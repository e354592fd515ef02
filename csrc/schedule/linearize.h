// csrc/schedule/linearize.h: pass: the final order of launches. It keeps every dependence and little memory alive at a
// time.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void linearize(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
