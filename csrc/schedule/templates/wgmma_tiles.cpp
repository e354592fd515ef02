// csrc/schedule/templates/wgmma_tiles.cpp: choice of a matrix-unit tile, and what its launch defines.
#include "csrc/schedule/templates/wgmma_tiles.h"

#include <algorithm>
#include <array>
#include <span>

#include "csrc/schedule/templates/group_tiles.h"

namespace ocl::schedule {

using ir::IndexExpr;
namespace {

// Operands of 32 bits: measured on an H200. 16 bits: estimates from the bytes that a tile moves for each product; not measured
// yet.
constexpr std::array<UnitTile, 4> kTiles = {{{128, 128, 1.0}, {128, 64, 0.73}, {64, 128, 0.7}, {64, 64, 0.69}}};
constexpr std::array<UnitTile, 5> kHalfTiles = {
    {{128, 256, 1.2}, {128, 128, 1.0}, {128, 64, 0.73}, {64, 128, 0.65}, {64, 64, 0.6}}};
constexpr int kProducers = 128;

}  // namespace

namespace {

/// Of TF32, fp32, bf16 and fp16: whether the kernels may be used.
using Allowed = std::array<bool, 4>;

std::optional<UnitMath> math_of(const TemplateContext& context, size_t operands, const Allowed& allowed) {
  const ir::Node& node = context.graph.nodes[context.node];
  const ir::DType type = context.graph.buffers[node.operands[0].buffer].dtype;
  for (size_t i = 0; i < operands; ++i)
    if (context.graph.buffers[node.operands[i].buffer].dtype != type) return std::nullopt;
  struct Row {
    ir::DType type;
    bool reduced;  // only where the user allows TF32
    UnitMath math;
  };
  const Caps& caps = context.caps;
  // TF32 first: without it, float32 that may be rounded is multiplied exactly.
  const std::array<Row, 4> rows = {{{ir::DType::kF32, true, {"tf32", 1, 4, 1.5e12, false}},
                                    {ir::DType::kF32, false, {"split tf32", 3, 4, 0.6e12, false}},
                                    {ir::DType::kBF16, false, {"bf16", 1, 8, 4e12, caps.wgmma_wide_bf16}},
                                    {ir::DType::kF16, false, {"f16", 1, 8, 4e12, caps.wgmma_wide_f16}}}};
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].type == type && allowed[i] && (!rows[i].reduced || node.reduced_precision)) return rows[i].math;
  return std::nullopt;
}

}  // namespace

std::optional<UnitMath> unit_math(const TemplateContext& context) {
  const Caps& caps = context.caps;
  return math_of(context, context.graph.nodes[context.node].operands.size(),
                 {caps.wgmma_tf32, caps.wgmma, caps.wgmma_bf16, caps.wgmma_f16});
}

std::optional<UnitMath> attention_math(const TemplateContext& context) {
  const Caps& caps = context.caps;
  if (context.graph.nodes[context.node].attention.kind != ir::AttentionKind::kForward)
    return math_of(context, 4,
                   {caps.wgmma_attention_gradient_tf32, caps.wgmma_attention_gradient, caps.wgmma_attention_gradient_bf16,
                    caps.wgmma_attention_gradient_f16});
  return math_of(context, 3,
                 {caps.wgmma_attention_tf32, caps.wgmma_attention, caps.wgmma_attention_bf16, caps.wgmma_attention_f16});
}

UnitTile choose_unit_tile(TemplateContext& context, const UnitMath& math, int64_t rows, int64_t columns, int64_t others) {
  const Caps& caps = context.caps;
  const bool halves = math.chunk == 8;
  std::vector<std::pair<double, UnitTile>> ranked;
  for (const UnitTile& tile : halves ? std::span<const UnitTile>(kHalfTiles) : std::span<const UnitTile>(kTiles)) {
    if (tile.columns == 256 && !math.wide) continue;
    const int64_t tiles = (rows + tile.rows - 1) / tile.rows * ((columns + tile.columns - 1) / tile.columns) * others;
    const int64_t rounds = (tiles + caps.units - 1) / caps.units;
    const double time = static_cast<double>(rounds) * tile.rows * tile.columns / tile.rate;
    ranked.emplace_back(time, tile);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [time, tile] : ranked)
    if (names.size() < kMostOptions) names.push_back(std::to_string(tile.rows) + "x" + std::to_string(tile.columns));
  return ranked[context.choices.pick("tile", names)].second;
}

IndexExpr persistent_groups(const Caps& caps, const IndexExpr& tiles, const UnitTile& tile, const IndexExpr& others) {
  // Two of the small groups fit on a unit.
  const int64_t resident = caps.units * (tile.rows == 64 && tile.columns == 64 ? 2 : 1);
  return ir::min(tiles, ir::ceildiv(resident, others));
}

void use_unit_kernel(const TemplateContext& context, TemplateLaunch& launch, const char* file, const UnitMath& math, int rows,
                     int columns) {
  launch.file = file;
  launch.libraries = {"wgmma"};
  launch.variant = std::to_string(rows) + "x" + std::to_string(columns) + " " + math.name;
  define_types(context, launch, 2);
  define(launch, "TILE_M", rows);
  define(launch, "TILE_N", columns);
  define(launch, "TERMS", math.terms);
  launch.local = {rows / 64 * 128 + kProducers, 1, 1};
  launch.store_width = 2;
}

void use_unit_tile(const TemplateContext& context, TemplateLaunch& launch, const char* file, const UnitMath& math,
                   const UnitTile& tile, const IndexExpr& columns) {
  use_unit_kernel(context, launch, file, math, tile.rows, tile.columns);
  launch.libraries.push_back("wgmma_store");
  if (multiples(context, math.chunk, {columns})) launch.store_width = math.chunk;
  launch.store_aligned = true;
}

}  // namespace ocl::schedule
