// csrc/schedule/computed_masks.h: pass: gives attention the ops that compute its mask.
#pragma once

#include "csrc/kernels/caps.h"
#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

/// Copies the ops that compute the mask of an attention into the node's body, if computing it for each score is better than a
/// mask in memory. The offer of a kernel then keeps the body or the mask.
void compute_masks(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
