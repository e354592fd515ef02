// csrc/schedule/scans_in_place.h: pass: lets a scan store into the buffer to which its result would be copied, as in an eager
// op that writes to a given tensor. Other nodes take the copy into their group; a scan's group has no room for it.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void scans_in_place(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
