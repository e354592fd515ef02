// csrc/schedule/inline_maps.h: pass: bodies of Map nodes move into the nodes that read them.
// A Map with one reader, another Map, always moves. A value with several readers, or one that feeds a reduction, moves if
// computing it again costs fewer bytes of memory traffic than storing and reading it.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void inline_maps(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
