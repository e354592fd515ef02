// csrc/schedule/inline_maps.h: pass: bodies of Map nodes move into the nodes that read them.
// Chains with one reader always do; a value with several readers, or one that feeds a reduction, when computing it again moves
// fewer bytes than storing and reading it. What is left for `fuse` are values that are worth a register or a place in memory.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void inline_maps(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
