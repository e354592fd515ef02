// csrc/schedule/share_copies.h: pass: makes a copy or a pack once, if several offers ask for it. An offer is
// for one node. It copies or packs an operand that no kernel can read in place. Two products of one tensor ask for
// the same copy, perhaps with its dimensions in another order. Examples are the weight and input gradients of a layer,
// and queries, keys and values of one input. The pass runs before inline_maps, which would compute the producer again
// for each copy.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void share_copies(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
