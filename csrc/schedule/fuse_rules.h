// csrc/schedule/fuse_rules.h: the rules that decide which clusters become one launch.
#pragma once

#include "csrc/schedule/cluster.h"

namespace ocl::schedule {

/// Two clusters that could be one. Either `first` comes before `second`, or neither depends on the other.
struct Fusion {
  const Schedule& schedule;
  const Caps& caps;
  const Cluster &first, &second;
  const Cluster& merged;
  bool connected;  // `second` reads what `first` stores.
};

struct FuseRule {
  const char* name;
  bool (*applies)(const Fusion&);  // Decides by the kinds of the two clusters.
  bool (*worth)(const Fusion&);
  const char* reason;  // Why the rule pays off.
};

/// The first rule that applies decides. Returns nullptr if no rule applies, or if merging does not pay off; `refused`
/// then names the rule.
const FuseRule* find_rule(const Fusion& fusion, std::string& refused);

}  // namespace ocl::schedule
