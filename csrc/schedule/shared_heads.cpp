// csrc/schedule/shared_heads.cpp: see shared_heads.h.
#include "csrc/schedule/shared_heads.h"

#include <algorithm>
#include <optional>

#include "csrc/schedule/loops.h"

namespace ocl::schedule {
namespace {

constexpr int kCopyLoop = 1 << 20;  // The number of a copy of a head.

/// Returns every `copies`-th head of keys or values; nullopt if those between differ from it.
std::optional<ir::View> one_of(const ir::View& view, int64_t copies, const ir::Graph& graph) {
  ir::View fewer = view;
  fewer.sizes[1] = view.sizes[1].constant() / copies;
  ir::Ranges ranges = graph.ranges();
  for (int d = 0; d < 4; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, fewer.sizes[d]);
  const IndexExpr copy = IndexExpr::loop(kCopyLoop);
  ranges.set_extent(copy.symbol(), copies);
  fewer.coords = substitute(view.coords, {{{ir::SymbolKind::kLoop, 1}, IndexExpr::loop(1) * copies + copy}}, ranges);
  const bool differ = std::ranges::any_of(fewer.coords, [&](const IndexExpr& e) { return e.uses(copy.symbol()); });
  return differ ? std::nullopt : std::optional(fewer);
}

}  // namespace

void shared_heads(Schedule& schedule, const Caps&) {
  for (ir::Node& node : schedule.graph.nodes) {
    if (node.kind != ir::NodeKind::kAttention || node.attention.kind != ir::AttentionKind::kForward) continue;
    ir::View &keys = node.operands[1], &values = node.operands[2];
    if (!keys.sizes[1].is_const() || keys.sizes[1] != values.sizes[1]) continue;
    const int64_t heads = keys.sizes[1].constant();
    for (int64_t copies = heads; copies > 1; --copies) {
      if (heads % copies != 0) continue;
      const auto k = one_of(keys, copies, schedule.graph), v = one_of(values, copies, schedule.graph);
      if (!k || !v) continue;
      keys = *k;
      values = *v;
      schedule.log.push_back(node.origin.op + ": reads heads of keys and values once that were repeated");
      break;
    }
  }
}

}  // namespace ocl::schedule
