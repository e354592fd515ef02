// csrc/schedule/fuse.h: pass: nodes -> groups. Clusters grow along values (epilogues of templates first, then chains,
// reductions with what surrounds them) and between siblings that read the same elements, as the rows of fuse_rules.cpp allow,
// never around a third node.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void fuse(Schedule& schedule, const Caps& caps);
/// Every node a group of its own: what `fuse` starts from, and all there is with Options::fuse off.
void one_group_per_node(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
