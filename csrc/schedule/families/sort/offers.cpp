// csrc/schedule/families/sort/offers.cpp: offers the kernels of sorting, for CPUs and for GPUs: kernels/sort.
#include <algorithm>

#include "csrc/schedule/families/operands.h"

namespace ocl::schedule {

namespace {

constexpr int kMostItems = 256;

/// Returns an operand [rows, ..] of which each row is contiguous in memory.
Operand rows_of(Draft& draft, size_t number) {
  const ir::View view = draft.node().operands[number];
  std::vector<int> order(view.sizes.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
  const std::optional<Operand> given = strided_operand(draft, view, order);
  bool dense = given && given->strides.back().is_const(1);
  for (size_t d = 2; dense && d < order.size(); ++d)
    dense = given->strides[d - 1] == ir::simplify(given->strides[d] * view.sizes[d], draft.graph.ranges());
  return dense ? *given : dense_copy(draft, view, order);
}

/// Passes what all steps have, and one work-item or work-group for each block. `items`: the work-items of a group on a GPU.
void pass_keys(Draft& draft, int items) {
  TemplateLaunch& launch = draft.launch();
  const ir::SortAttrs& sort = draft.node().sort;
  const ir::Shape sizes = draft.node().operands[0].sizes;
  const Operand keys = rows_of(draft, 0);
  launch.kind = "sort";
  define(launch, "BLOCK", sort.block);
  if (draft.buffer(keys.input.buffer).dtype == ir::DType::kI64) define(launch, "LONG_KEYS", 1);
  if (!draft.caps.is_cpu) define(launch, "ITEMS", items);
  launch.buffer("keys", keys.input);
  launch.args({{"n", sizes[1]}, {"keys_row", keys.strides[0]}});
  if (sort.step != ir::SortStep::kBlocks) launch.args({{"shift", sort.shift}, {"flip", sort.is_signed ? ir::kDigits / 2 : 0}});
  store_along(launch, 0, 1, static_cast<int>(draft.node().sizes.size()));
  launch.groups = {ir::ceildiv(sizes[1], sort.block), sizes[0], 1};
  launch.local = {draft.caps.is_cpu ? 1 : items, 1, 1};
}

/// Passes the positions of the keys, if there are any.
void pass_positions(Draft& draft, bool given) {
  TemplateLaunch& launch = draft.launch();
  define(launch, "HAS_POSITIONS", given);
  IndexExpr row = 0;
  if (given) {
    const Operand positions = rows_of(draft, 1);
    launch.buffer("positions", positions.input);
    row = positions.strides[0];
  }
  launch.arg("positions_row", row);
}

/// Returns the largest power of two that is at most `most` and that the device grants.
int granted_items(const Draft& draft, int64_t most) {
  int items = 1;
  while (items * 2 <= std::min<int64_t>({most, kMostItems, draft.caps.max_group_size})) items *= 2;
  return items;
}

}  // namespace

void offer_sort_count(Draft& draft) {
  pass_keys(draft, granted_items(draft, kMostItems));
  const bool chosen = draft.node().operands.size() > 1;
  define(draft.launch(), "HAS_CHOSEN", chosen);
  if (chosen) draft.launch().buffer("chosen", rows_of(draft, 1).input);
  draft.launch().variant = "count";
}

void offer_sort_move(Draft& draft) {
  // Local memory has a digit and a place of each key, three numbers of each digit, and of each work-item 17 counts.
  const int64_t room = draft.caps.local_bytes - 13 * ir::kDigits - 3 * draft.node().sort.block;
  pass_keys(draft, granted_items(draft, room / 34));
  const bool moved = draft.node().operands.size() > 2;
  pass_positions(draft, moved);
  define(draft.launch(), "SUMS", draft.node().operands.back().sizes.size() == 3);
  draft.launch().buffer("ends", rows_of(draft, moved ? 2 : 1).input);
  draft.launch().arg("blocks", draft.launch().groups[0]);
  draft.launch().variant = "move";
}

void offer_sort_blocks(Draft& draft) {
  const ir::SortAttrs sort = draft.node().sort;
  int64_t size = 2;
  while (size < sort.block) size *= 2;
  pass_keys(draft, granted_items(draft, size / 2));
  pass_positions(draft, draft.node().operands.size() > 1);
  TemplateLaunch& launch = draft.launch();
  define(launch, {{"KEEP", sort.keep}, {"SHIFT", sort.shift}, {"DIGITS_SORTED", sort.digits}, {"SIGNED", sort.is_signed}});
  if (!draft.caps.is_cpu) {
    const bool wide = draft.buffer(draft.node().operands[0].buffer).dtype == ir::DType::kI64;
    // Counting the keys of a block by each digit takes about as long as sorting a quarter of them.
    const bool selects = sort.keep * 4 <= sort.block;
    const int64_t items = launch.local[0], key_bytes = wide ? 10 : 6;  // With its place.
    define(launch, "LOCAL_KEYS", size * key_bytes <= draft.caps.local_bytes);
    // Counts of all values, and what the work-items sum. More values than twice the keys take longer than comparing.
    const bool counts = sort.end > 0 && sort.end <= 2 * sort.block && draft.node().operands[0].sizes[1].is_const(sort.keep) &&
                        sort.keep == sort.block &&
                        size * key_bytes + 4 * (sort.end + 2 * items) + 2 * items + 4 <= draft.caps.local_bytes;
    define(launch, "END", counts ? sort.end : 0);
    while (selects && size / 2 >= std::max<int64_t>(sort.keep, 2)) size /= 2;
    define(launch, {{"SELECTS", selects}, {"SIZE", size}});
  }
  launch.variant = std::to_string(sort.keep) + " of " + std::to_string(sort.block);
}

}  // namespace ocl::schedule
