// csrc/schedule/loop_order.h: pass: orders the loops of each group by the strides of its largest access, merges
// neighbouring loops and chooses a vector width.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void loop_order(Schedule& schedule, const Caps& caps);
/// True if every offset into a buffer of the group, and its loop count, is proved to be below 2^31.
bool has_narrow_indices(const Schedule& schedule, const Group& group);
/// Pass: sets Group::index32 by has_narrow_indices.
void choose_index_width(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
