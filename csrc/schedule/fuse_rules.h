// csrc/schedule/fuse_rules.h: which clusters become one launch, and why: one row per rule.
#pragma once

#include "csrc/schedule/cluster.h"

namespace ocl::schedule {

/// Two clusters that could legally be one: `first` comes before `second`, or neither depends on the other.
struct Fusion {
  const Schedule& schedule;
  const Caps& caps;
  const Cluster &first, &second;
  const Cluster& merged;
  bool connected;  // second reads what first stores
};

struct FuseRule {
  const char* name;
  bool (*applies)(const Fusion&);  // about the kinds of the two
  bool (*worth)(const Fusion&);
  const char* reason;   // why it is worth it
  const char* why_not;  // why it is not, where `worth` says no
};

/// The first row that applies decides. Null: no row, or not worth it; `why_not` then is the reason.
const FuseRule* find_rule(const Fusion& fusion, const char*& why_not);

}  // namespace ocl::schedule
