// csrc/schedule/share_copies.h: pass: copies and packs that several template choosers asked for are made once.
// A chooser works on one node: it copies an operand that no kernel can read in place, or packs it. Two products of one tensor
// (its layer's weight and input gradients; queries, keys and values of one input) ask for the same copy or pack, perhaps with
// its dimensions in another order. The pass runs before inline_maps, which would compute the producer again for each copy.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void share_copies(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
