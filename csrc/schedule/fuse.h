// csrc/schedule/fuse.h: pass: nodes -> groups.
// Clusters of nodes grow from producers to consumers (epilogues of templates first), and between siblings that read the same
// elements. The rows of fuse_rules.cpp decide. Two clusters stay apart if a path leads from one to the other through a third.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void fuse(Schedule& schedule, const Caps& caps);
/// Makes each node a group of its own: what `fuse` starts from, and the whole pass with Options::fuse off.
void one_group_per_node(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
