// csrc/schedule/families/sort/fits.cpp: which step of sorting each kernel computes.
#include "csrc/schedule/offer/offer.h"

namespace ocl::schedule {

bool computes_sort(const KernelRow& row, const ir::Node& node) {
  if (node.kind != ir::NodeKind::kSort) return false;
  switch (row.id) {
    case KernelId::k_sort_count_item:
    case KernelId::k_sort_count_group:
      return node.sort.step == ir::SortStep::kCount;
    case KernelId::k_sort_move_item:
    case KernelId::k_sort_move_group:
      return node.sort.step == ir::SortStep::kMove;
    default:
      return node.sort.step == ir::SortStep::kBlocks;
  }
}

Refused why_not_sort_count(const Draft&) { return std::nullopt; }
Refused why_not_sort_move(const Draft&) { return std::nullopt; }
Refused why_not_sort_blocks(const Draft&) { return std::nullopt; }

}  // namespace ocl::schedule
