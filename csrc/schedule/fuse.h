// csrc/schedule/fuse.h: pass: fuses nodes into groups. Each node starts as a cluster. Clusters merge from producers to
// consumers (epilogues of templates first), and between siblings that read the same elements. The rules of
// fuse_rules.cpp decide. Two clusters are not merged if a path leads from one to the other through a third.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void fuse(Schedule& schedule, const Caps& caps);
/// Makes each node a group of its own. It replaces `fuse` when Options::fuse is off.
void one_group_per_node(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
