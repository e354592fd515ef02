// csrc/schedule/inline_maps.h: pass: moves bodies of Map nodes into the nodes that read them. A Map whose only reader
// is another Map moves, unless the reader evaluates it much more often. A value with several readers, or one that is
// reduced, moves if computing it again costs less memory traffic than storing and loading it.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void inline_maps(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
