// csrc/schedule/index_width.h: pass: finds which groups may compute their indices in 32 bits.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// True if every offset into a buffer of the group, and its loop count, is proved to be below 2^31.
bool has_narrow_indices(const Schedule& schedule, const Group& group);
/// Sets Group::index32 by has_narrow_indices.
void choose_index_width(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
