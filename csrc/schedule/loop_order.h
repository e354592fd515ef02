// csrc/schedule/loop_order.h: pass: loops of each group in memory order, neighbours collapsed, vector width, 32-bit offsets.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void loop_order(Schedule& schedule, const Caps& caps);
/// Pass: Group::index32 where every offset of every buffer of the group, and the loop count, is proven to be below 2^31.
void choose_index_width(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
