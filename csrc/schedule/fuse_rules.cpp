// csrc/schedule/fuse_rules.cpp: the rules of fusion, with the reason why each pays off.
#include "csrc/schedule/fuse_rules.h"

#include <algorithm>
#include <cmath>

#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {

namespace {

constexpr size_t kMaxLaunchOps = 1500;    // Most ops of a launch, to limit compile time.
constexpr size_t kMaxLaunchBuffers = 64;  // Most buffers of a launch. Their pointers need registers.
constexpr double kRowBytes = 256 * 1024;  // Largest row in bytes that later phases still find in the caches.

bool fits(const Fusion& f) {
  size_t ops = 0;
  for (const Member& member : f.merged.members) ops += f.schedule.graph.nodes[member.node].body.ops.size();
  const size_t buffers = f.merged.buffers().size();
  return ops <= kMaxLaunchOps && buffers <= kMaxLaunchBuffers &&
         static_cast<int>(buffers) * 16 + 256 <= f.caps.max_kernel_arg_bytes;
}

/// True if one work-item or work-group may read its row several times: rows are short, and there are enough of them.
bool rows_persist(const Fusion& f) {
  const ir::Graph& graph = f.schedule.graph;
  const double rows = typical_product(graph, f.merged.loops.sizes),
               length = typical_product(graph, f.merged.loops.reduce_sizes);
  for (const Member& member : f.merged.members)
    if (graph.nodes[member.node].stage != ir::ReductionStage::kWhole) return false;
  if (f.merged.strategy == LoopStrategy::kRow) return length * 4 <= kRowBytes && (rows >= f.caps.units || length <= 4096);
  if (f.merged.strategy == LoopStrategy::kColumn) return enough_groups(LoopStrategy::kColumn, rows, length, 4, f.caps);
  return f.merged.strategy == LoopStrategy::kSequential && length <= 1024 &&
         rows >= f.caps.units * (f.caps.is_cpu ? f.caps.vector_floats : 64);
}

bool shares_input(const Fusion& f) {
  for (const ClusterAccess& a : f.first.accesses)
    for (const ClusterAccess& b : f.second.accesses)
      if (!a.store && !b.store && a.buffer == b.buffer && typical_bytes(f.schedule.graph, a.buffer) >= 4096) return true;
  return false;
}

/// True if both clusters read some buffer element by element in the same order. It is not enough if one reads a square
/// along rows and the other along columns.
bool shares_elements(const Fusion& f) {
  for (const ClusterAccess& a : f.first.accesses)
    for (const ClusterAccess& b : f.second.accesses)
      if (!a.store && !b.store && a.buffer == b.buffer && a.coords == b.coords &&
          typical_bytes(f.schedule.graph, a.buffer) >= 4096)
        return true;
  return false;
}

/// True if every reduction of both clusters is the final step of a split reduction.
bool both_final(const Fusion& f) {
  const auto merges = [&](const Cluster& c) {
    return std::all_of(c.members.begin(), c.members.end(), [&](const Member& m) {
      const ir::Node& node = f.schedule.graph.nodes[m.node];
      return node.kind != ir::NodeKind::kReduce || node.stage == ir::ReductionStage::kFinal;
    });
  };
  return merges(f.first) && merges(f.second);
}

bool small(const Fusion& f) {
  return typical_product(f.schedule.graph, f.merged.loops.sizes) *
             typical_product(f.schedule.graph, f.merged.loops.reduce_sizes) <=
         65536;
}

constexpr const char* kManyPasses =
    "together they would need several passes over each row, and the rows are too long for the cache or too few for the device";

const FuseRule kRules[] = {
    {"epilogue", [](const Fusion& f) { return f.first.main != ir::kNone; }, [](const Fusion& f) { return f.connected; },
     "the result is still in registers of the template", "it does not read the result of the hand-written kernel"},
    {"pointwise chain", [](const Fusion& f) { return f.first.pointwise() && f.second.pointwise() && f.connected; },
     [](const Fusion&) { return true; }, "the value is still in a register", ""},
    {"pointwise siblings", [](const Fusion& f) { return f.first.pointwise() && f.second.pointwise(); }, shares_input,
     "both read the same elements", "they share less than 4 KB of input"},
    {"map into reduction", [](const Fusion& f) { return f.first.pointwise() && f.second.has_reduction(); },
     [](const Fusion& f) { return f.merged.inner_phases() <= 1 || rows_persist(f); },
     "the value is stored on its way into the reduction", kManyPasses},
    {"map after reduction", [](const Fusion& f) { return f.first.has_reduction() && f.second.pointwise() && f.connected; },
     [](const Fusion& f) { return f.merged.inner_phases() == f.first.inner_phases() || rows_persist(f); },
     "the reduced value is still in a register", kManyPasses},
    {"map beside reduction", [](const Fusion& f) { return f.first.has_reduction() && f.second.pointwise(); },
     [](const Fusion& f) { return f.merged.inner_phases() <= f.first.inner_phases() && shares_input(f); },
     "both read the same elements", "they share less than 4 KB of input, or would need another pass over each row"},
    {"reductions of one row",
     [](const Fusion& f) { return f.first.has_reduction() && f.second.has_reduction() && f.connected; },
     [](const Fusion& f) { return f.merged.inner_phases() <= 1 || rows_persist(f); }, "the row stays in cache", kManyPasses},
    {"sibling reductions", [](const Fusion& f) { return f.first.has_reduction() && f.second.has_reduction(); },
     [](const Fusion& f) {
       return (f.merged.inner_phases() <= 1 || rows_persist(f)) && (shares_elements(f) || (both_final(f) && small(f)));
     },
     "both reduce the same elements",
     "they do not read the same elements in the same order, or would need several passes over rows that are too long or too "
     "few"},
};

}  // namespace

const FuseRule* find_rule(const Fusion& fusion, const char*& why_not) {
  for (const FuseRule& rule : kRules) {
    if (!rule.applies(fusion)) continue;
    const bool worth = rule.worth(fusion);
    if (worth && fits(fusion)) return &rule;
    why_not = worth ? "one kernel would have too many operations or buffers" : rule.why_not;
    return nullptr;
  }
  why_not = "no rule of fusion is for such a pair";
  return nullptr;
}

}  // namespace ocl::schedule
