// csrc/schedule/index_width.h: pass: decides which kernels compute indices in 32 bits.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// True if every offset into a buffer of the group, its loop count and the size symbols that it uses are proved to fit 31 bits.
bool has_narrow_indices(const Schedule& schedule, const Group& group);
/// Pass: sets Group::index32 by has_narrow_indices.
void choose_index_width(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
