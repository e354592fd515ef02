// csrc/schedule/families/attention/offer_group.cpp: offers kernels/attention/group.cl, attention on GPUs.
#include "csrc/schedule/families/attention/operands.h"

namespace ocl::schedule {

using ir::IndexExpr;
namespace {

constexpr int kTileColumns = 64, kPad = 4;

/// Returns the bytes of local memory that kernels/attention/group.cl needs for tiles with this many rows, of which `step`
/// elements of the depth are staged at a time.
int64_t local_bytes(int rows, int step) {
  return 4LL * (step * (rows + kPad) + step * (kTileColumns + kPad) + kTileColumns * (rows + kPad) + kTileColumns / 4 * rows);
}

}  // namespace

void offer_attention_group(Draft& draft) {
  const AttentionParts parts = attention_parts(draft);
  const Caps& caps = draft.caps;
  const int64_t rows = typical(parts.rows(), 512), others = typical(parts.batch, 8) * typical(parts.row_heads(), 8);
  const bool large = rows > 32 && (rows + 63) / 64 * others >= caps.units;
  const bool fits = 256 <= caps.max_group_size && local_bytes(64, 16) <= caps.local_bytes;
  const auto tile = static_cast<int>(
      draft.choices().pick("tile", large && fits ? std::vector<int64_t>{64, 32} : std::vector<int64_t>{32, fits ? 64 : 32}));

  TemplateLaunch& launch = draft.launch();
  launch.variant = std::to_string(tile) + "x" + std::to_string(kTileColumns);
  launch.stores.width = 4;
  launch.local = {tile / 4 * (kTileColumns / 4), 1, 1};
  define_types(draft, launch, 4);
  define(launch, "TILE_R", tile);
  if (local_bytes(tile, 16) > caps.local_bytes) define(launch, "STEP", 8);
  define_attention(draft, parts);

  std::vector<IndexExpr> rows_of;
  const auto add_rows = [&](const char* name, const ir::View* view) {
    if (!view) return;
    const Operand operand = attention_rows(draft, *view, 1);
    add_rows_arguments(draft, name, operand);
    rows_of.insert(rows_of.end(), operand.strides.begin(), operand.strides.begin() + 3);
    rows_of.push_back(view->sizes[3]);
  };
  add_rows("a", parts.a);
  add_rows("b", parts.b);
  add_rows("w", parts.w);
  if (parts.pass > 0) {
    add_rows("a2", parts.a2);
    add_rows("b2", parts.b2);
    add_statistics_arguments(draft, parts);
  }
  add_rows("w2", parts.w2);
  add_mask_arguments(draft, parts);
  define(launch, "QUADS", multiples(draft, 4, rows_of));
  launch.groups = {ir::ceildiv(parts.rows(), tile), parts.row_heads(), parts.batch};
}

}  // namespace ocl::schedule
