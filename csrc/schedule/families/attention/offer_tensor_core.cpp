// csrc/schedule/families/attention/offer_tensor_core.cpp: offers tensor core kernels for attention and its gradients.
#include <cmath>

#include "csrc/schedule/families/attention/operands.h"
#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

constexpr KernelLevel kWarpgroup = KernelLevel::k_warpgroup, kWarp = KernelLevel::k_warp,
                      kMatrix = KernelLevel::k_subgroup_matrix;

#define ATTENTION_TILE(...) AttentionTile{__VA_ARGS__},
constexpr AttentionTile kTiles[] = {
#include "csrc/schedule/families/attention/tiles.def"
};
#undef ATTENTION_TILE

// The cost of starting and ending a work-group, as the number of pairs (query, key) that take the same time: a
// constant, and a part for each row.
constexpr double kStartPairs = 12e3, kRowPairs = 200;

/// Returns the tiles that support the head sizes, masks and dropout of the node.
std::vector<AttentionTile> tiles_for(const Draft& draft, const TensorCoreMath& math, const AttentionParts& parts) {
  const int64_t depth = std::max(parts.depth, parts.depth2);
  const ir::Node& node = draft.node();
  const bool masked = parts.mask || parts.state || !node.body.ops.empty();
  std::vector<AttentionTile> tiles = attention_tiles(math, parts.pass);
  std::erase_if(tiles, [&](const AttentionTile& tile) {
    return depth > tile.depth || (depth <= 64 && tile.depth > 64) ||
           !tile.computes(node.attention.causal || parts.blocks, masked);
  });
  return tiles;
}

/// Returns the tile with the lowest cost, in full waves, for the scores of all batches and heads.
AttentionTile choose_attention_tile(Draft& draft, const TensorCoreMath& math, const AttentionParts& parts) {
  const int64_t rows = typical(parts.rows(), 512), columns = typical(parts.columns(), 512);
  const int64_t others = typical(parts.batch, 8) * typical(parts.row_heads(), 8);
  const Caps& caps = draft.caps;
  std::vector<std::pair<double, AttentionTile>> ranked;
  for (const AttentionTile& tile : tiles_for(draft, math, parts)) {
    const int64_t tiles = (rows + tile.rows - 1) / tile.rows * others;
    const int64_t steps = (columns + tile.columns - 1) / tile.columns;
    const double pairs = static_cast<double>(tile.rows * tile.columns * steps) / tile.rate;
    const bool persistent = tile.level == kWarpgroup && !parts.blocks;  // The next task is loaded while one is computed.
    const double time = pairs + (persistent ? 0 : (kStartPairs + kRowPairs * tile.rows) / tile.resident);
    ranked.emplace_back(static_cast<double>((tiles + caps.units - 1) / caps.units) * time, tile);
  }
  return pick_tile(draft.choices(), std::move(ranked));
}

/// Makes the work-groups persistent: as many as are resident share the tasks. A work-group that marks the steps which a mask
/// shows has one task.
void share_tasks(Draft& draft, const AttentionParts& parts, const AttentionTile& tile) {
  TemplateLaunch& launch = draft.launch();
  launch.arg("batches", parts.batch);
  if (tile.resident > 1) define(launch, "RESIDENT", tile.resident);
  const IndexExpr tasks = launch.groups[0] * launch.groups[1] * launch.groups[2];
  launch.groups = {parts.blocks ? tasks : ir::min(tasks, static_cast<int64_t>(draft.caps.units) * tile.resident), 1, 1};
}

// The joint gradient has a work-group for a head, with all its queries and keys. Two kernels have at most two work-groups each
// for so many, take about three times as long for all of them, and compute seven products where it computes five. So it is
// expected to win whatever the number of heads is.
constexpr int64_t kLongestJoint = 256;
bool is_short(const ir::View& rows) { return rows.sizes[2].is_const() && rows.sizes[2].constant() <= kLongestJoint; }

Refused why_not_joint(const Draft& draft) {
  static const Fit rows[] = {
      {[](const Draft& d) { return is_short(d.node().operands[0]) && is_short(d.node().operands[1]); },
       [](const Draft&) { return "it has, or may have, more than " + std::to_string(kLongestJoint) + " queries or keys"; }},
      {[](const Draft& d) { return d.node().operands[0].sizes[1] == d.node().operands[1].sizes[1]; },
       [](const Draft&) { return std::string("several heads of queries share keys and values"); }},
      {[](const Draft& d) {
         return d.node().attention.dropout == 0 && d.node().attention.blocks == 0 && d.node().body.ops.empty();
       },
       [](const Draft&) { return std::string("it drops weights, computes its mask or skips blocks of it"); }}};
  return first_refusal(rows, draft);
}

int64_t rows_of_scores(const Draft& d) { return typical(attention_parts(d).rows(), 512); }

}  // namespace

std::vector<AttentionTile> attention_tiles(const TensorCoreMath& math, int pass) {
  std::vector<AttentionTile> tiles;
  for (const AttentionTile& tile : kTiles)
    if (tile.level == math.level && tile.pass == pass && tile.chunk == math.chunk && tile.terms == math.terms &&
        (tile.lanes == 0 || tile.lanes == math.lanes()))
      tiles.push_back(tile);
  return tiles;
}

Refused why_not_attention_tensor_core(const Draft& draft) {
  static const Fit rows[] = {
      kLoadable,
      kKnownHeads,
      kMultiplied,
      {[](const Draft& d) { return d.node().attention.scale > 0 && std::isfinite(d.node().attention.scale); },
       [](const Draft& d) { return "the scale " + std::to_string(d.node().attention.scale) + " is not positive and finite"; }},
      {[](const Draft& d) { return d.node().attention.cap == 0; },
       [](const Draft&) { return std::string("its scores have a soft cap"); }},
      {[](const Draft& d) { return rows_of_scores(d) >= 24; },
       [](const Draft& d) {
         return std::to_string(rows_of_scores(d)) + " rows of scores are below 24: most of a tile would be empty";
       }},
      {[](const Draft& d) { return !tiles_for(d, *tensor_core_math(d), attention_parts(d)).empty(); },
       [](const Draft& d) {
         const AttentionParts parts = attention_parts(d);
         return std::string("it has no tile for ") + tensor_core_math(d)->name + " with heads of " +
                std::to_string(std::max(parts.depth, parts.depth2));
       }}};
  const Refused refused = first_refusal(rows, draft);
  return refused || draft.node().attention.kind != ir::AttentionKind::kGradients ? refused : why_not_joint(draft);
}

void offer_attention_tensor_core(Draft& draft) {
  const AttentionParts parts = attention_parts(draft);
  const TensorCoreMath math = *tensor_core_math(draft);
  const AttentionTile tile = choose_attention_tile(draft, math, parts);
  const bool warpgroups = math.level == kWarpgroup, gradient = parts.pass > 0;
  const bool whole_chunks = parts.depth % math.chunk == 0 && parts.depth2 % math.chunk == 0;

  TemplateLaunch& launch = draft.launch();
  use_tensor_cores(draft, math, tile.tile(), 128, whole_chunks ? math.chunk : 2);
  // The loads of a bias from memory take the registers that overlap needs.
  const bool biased = parts.mask && draft.node().body.ops.empty() && draft.buffer(parts.mask->buffer).dtype != ir::DType::kBool;
  if (warpgroups) define(launch, "OVERLAP", tile.overlap && !(biased && !gradient));
  if (warpgroups && parts.pass == 0 && tile.fits_boxes() && math.has(KernelForm::k_boxes) && !parts.blocks) {
    const std::vector<std::string> copies = {"boxes", "chunks"};
    if (copies[draft.choices().pick("copies", copies)] == "boxes") define(launch, "BOXES", 1);
  }
  define(launch, "TILE_C", tile.columns);
  // With a causal mask, steps that a consumer does not see stay behind conditions, which would serialize its products.
  const bool causal = draft.node().attention.causal;
  if (const ir::IndexExpr keys = parts.columns(); warpgroups && !gradient && tile.overlap && !causal && !parts.blocks &&
                                                  keys.is_const() && keys.constant() > 0 && keys.constant() <= tile.columns)
    define(launch, "ONE_STEP", static_cast<int>(keys.constant()));
  // Each of the parts has whole fragments, whose rows are 8 with DPAS.
  const int64_t depth = std::max(parts.depth, parts.depth2), unit = std::max(32, 8 * tile.parts);
  define(launch, "DEPTH_TILE", warpgroups ? tile.depth : (depth + unit - 1) / unit * unit);
  share_registers(launch, tile.tile());
  define_attention(draft, parts);
  launch.stores.align(true);

  std::vector<IndexExpr> rows_of;
  using Named = std::pair<const char*, const ir::View*>;
  const std::vector<Named> operands =
      gradient ? std::vector<Named>{{"a", parts.a}, {"b", parts.b}, {"a2", parts.a2}, {"b2", parts.b2}}
               : std::vector<Named>{{"q", parts.a}, {"k", parts.b}, {"v", parts.w}};
  for (const auto& [name, view] : operands) {
    const Operand operand = attention_rows(draft, *view, math.chunk);
    add_rows_arguments(draft, name, operand);
    for (int d = 0; d < 3; ++d)
      if (!view->sizes[d].is_const(1)) rows_of.push_back(operand.strides[d]);
  }
  define(launch, "DIRECT", multiples(draft, math.chunk, rows_of));
  define_alignment(draft, math.chunk);
  if (gradient) add_statistics_arguments(draft, parts);
  add_mask_arguments(draft, parts);
  add_blocks_arguments(draft, parts);
  launch.groups = {parts.pass == 3 ? IndexExpr(1) : ir::ceildiv(parts.rows(), tile.rows), parts.row_heads(), parts.batch};
  if (warpgroups) share_tasks(draft, parts, tile);
}

}  // namespace ocl::schedule
