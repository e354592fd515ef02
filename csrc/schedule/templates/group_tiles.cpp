// csrc/schedule/templates/group_tiles.cpp: chooses tiles of a work-group, and proves alignments.
#include "csrc/schedule/templates/group_tiles.h"

#include <algorithm>

namespace ocl::schedule {

using ir::IndexExpr;

namespace {
constexpr int kTileDepth = 16;  // Inner-dimension elements of one step.
// Inner-dimension elements of one running sum. The error is then below twice that of libraries that sum in blocks.
constexpr int kSumDepth = 256;
}  // namespace

GroupTile choose_group_tile(TemplateContext& context, const std::vector<GroupTile>& among, int64_t rows, int64_t columns,
                            int64_t others) {
  const Caps& caps = context.caps;
  std::vector<std::pair<double, GroupTile>> ranked;
  for (const GroupTile& tile : among) {
    if (tile.items() > caps.max_group_size || 2 * 16 * (tile.rows + tile.columns + 8) * 4 > caps.local_bytes)
      continue;  // The two staged tiles do not fit into local memory.
    const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * others;
    const int64_t waves = (tiles + caps.units - 1) / caps.units;
    const double time = static_cast<double>(waves) * tile.rows * tile.columns / tile.rate;
    ranked.emplace_back(time, tile);
  }
  if (ranked.empty()) return among.front();
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [time, tile] : ranked)
    if (names.size() < kMostOptions) names.push_back(tile.name());
  return ranked[context.choices.pick("tile", names)].second;
}

void use_tile(TemplateLaunch& launch, const GroupTile& tile, int64_t depth) {
  define(launch, "TILE_M", tile.rows);
  define(launch, "TILE_N", tile.columns);
  define(launch, "TILE_K", kTileDepth);
  // A second set of sums costs registers, so short sums have one set.
  define(launch, "SUM_STEPS", depth > 3 * kSumDepth ? kSumDepth / kTileDepth : 0);
  define(launch, "ITEM_M", tile.item_rows);
  define(launch, "ITEM_N", tile.item_columns);
  launch.local = {tile.items(), 1, 1};
}

bool multiples(const TemplateContext& context, int of, const std::vector<IndexExpr>& sizes) {
  const ir::Ranges ranges = context.graph.ranges();
  return std::all_of(sizes.begin(), sizes.end(), [&](const IndexExpr& e) { return ranges.known_divides(of, e); });
}

bool are_multiples_of_4(const TemplateContext& context, const std::vector<IndexExpr>& sizes) {
  return multiples(context, 4, sizes);
}

void define_alignment(const TemplateContext& context, TemplateLaunch& launch, int chunk) {
  const bool placed = std::all_of(launch.inputs.begin(), launch.inputs.end(), [&](const TemplateLaunch::Input& input) {
    return context.graph.buffers[input.buffer].role == ir::BufferRole::kIntermediate &&
           multiples(context, chunk, {input.offset});
  });
  define(launch, "ALIGNED_BASES", placed);
}

bool channels_contiguous(const Operand& operand) { return operand.strides[1].is_const(1); }

Operand channels_last_operand(TemplateContext& context, const ir::View& view) {
  const auto in_place = strided_operand(context, view, kChannelsLast);
  // With one channel, the channel stride does not matter, and the kernels assume 1.
  if (in_place && (channels_contiguous(*in_place) || view.sizes[1].is_const(1))) return *in_place;
  return dense_copy(context, view, kChannelsLast);
}

}  // namespace ocl::schedule
