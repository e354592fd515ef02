// csrc/schedule/shared_heads.h: pass: lets attention read keys and values once that were repeated for several heads.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// A model may repeat each head of keys and values for the queries that share it. Kernels of attention let queries share heads
/// themselves, so the repeated heads, which are no strided window and would be copied, become the heads that they repeat.
void shared_heads(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
