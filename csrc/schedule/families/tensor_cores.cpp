// csrc/schedule/families/tensor_cores.cpp: chooses a tile for tensor cores and sets the macros of its launch.
#include "csrc/schedule/families/tensor_cores.h"

#include <array>
#include <bit>

namespace ocl::schedule {

namespace {

constexpr KernelLevel kWarpgroup = KernelLevel::k_warpgroup, kWarp = KernelLevel::k_warp,
                      kMatrix = KernelLevel::k_subgroup_matrix;

#define PRODUCT_TILE(...) TensorCoreTile{__VA_ARGS__},
constexpr TensorCoreTile kProductTiles[] = {
#include "csrc/schedule/families/tiles.def"
};
#undef PRODUCT_TILE
/// True if a warpgroup's stages fit into its share of local memory, and it gives away whole sets of registers. A stage has rows
/// of 128 bytes: split operands have two each, of those in place only B.
constexpr bool is_possible(const TensorCoreTile& t) {
  const int a = t.packed && t.terms == 3 ? 2 : 1, b = t.chunk == 4 && (!t.packed || t.terms == 3) ? 2 : 1;
  return t.level != kWarpgroup || (t.stages > 0 && t.stages * (a * t.rows + b * t.columns) * 128 * t.at_once() <= 227 << 10 &&
                                   t.producer_registers % 8 == 0 && t.consumer_registers % 8 == 0);
}
static_assert(std::all_of(std::begin(kProductTiles), std::end(kProductTiles), is_possible), "see is_possible()");

// Stages, and rows and columns of a tile, with the instructions of compute capability 7.5: two buffers of 128 bytes each then
// fit into 48 KiB of local memory.
constexpr int kNarrowStages = 2, kNarrowTile = 192;

/// Returns the type of a multiplied operand that differs from the first operand's; nullopt if all are equal. The
/// other operands of attention (statistics, mask, random state) may have any type.
std::optional<ir::DType> other_type(const Draft& draft) {
  const ir::Node& node = draft.node();
  const size_t operands = node.kind != ir::NodeKind::kAttention                ? node.operands.size()
                          : node.attention.kind == ir::AttentionKind::kForward ? 3
                                                                               : 4;
  for (size_t i = 1; i < operands; ++i)
    if (const ir::DType type = draft.buffer(node.operands[i].buffer).dtype; type != draft.buffer(node.operands[0].buffer).dtype)
      return type;
  return std::nullopt;
}

}  // namespace

std::optional<TensorCoreMath> tensor_core_math(const Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::DType type = draft.buffer(node.operands[0].buffer).dtype;
  if (other_type(draft)) return std::nullopt;
  // TF32 is first. If it is not allowed, float32 is multiplied by split TF32. Only the rates of warpgroup kernels are
  // measured; the others are estimates.
  static const std::array<TensorCoreMath, 11> rows = {
      {{.type = KernelType::kTf32, .level = kWarpgroup, .name = "tf32", .flops = 1.5e12, .product = 1e12},
       {.type = KernelType::kFp32, .level = kWarpgroup, .name = "split tf32", .terms = 3, .flops = 0.6e12, .product = 0.65e12},
       {.type = KernelType::kBf16, .level = kWarpgroup, .name = "bf16", .flops = 4e12, .product = 2.65e12, .stored = 8e9},
       {.type = KernelType::kFp16, .level = kWarpgroup, .name = "f16", .flops = 4e12, .product = 2.65e12, .stored = 8e9},
       {.type = KernelType::kTf32, .level = kWarp, .name = "tf32", .flops = 1e12, .product = 1e12},
       {.type = KernelType::kFp32, .level = kWarp, .name = "split tf32", .terms = 3, .flops = 0.5e12, .product = 0.5e12},
       {.type = KernelType::kBf16, .level = kWarp, .name = "bf16", .flops = 2.5e12, .product = 2.5e12},
       {.type = KernelType::kFp16, .level = kWarp, .name = "f16", .flops = 2.5e12, .product = 2.5e12},
       {.type = KernelType::kFp32, .level = kMatrix, .name = "f32", .flops = 0.2e12, .product = 0.2e12},
       {.type = KernelType::kBf16, .level = kMatrix, .name = "bf16", .flops = 0.6e12, .product = 0.6e12},
       {.type = KernelType::kFp16, .level = kMatrix, .name = "f16", .flops = 0.6e12, .product = 0.6e12}}};
  const KernelRow& kernel = kernel_row(draft.kernel);
  for (TensorCoreMath math : rows) {
    if (storage_of(math.type) != type || math.level != kernel.level || !draft.caps.kernels.has(kernel.base, math.type))
      continue;
    if (math.type == KernelType::kTf32 && !node.reduced_precision) continue;
    math.chunk = 16 / static_cast<int>(ir::size_bytes(type));
    if (math.level == kMatrix || (math.level == kWarp && draft.caps.matrix == MatrixInstructions::kMma8))
      math.matrix = draft.caps.matrix;
    for (const KernelRow& row : kernel_rows())
      if (row.base == kernel.base && draft.caps.kernels.has(row.id, math.type)) math.forms.insert(row.form);
    return math;
  }
  return std::nullopt;
}

const Fit kMultiplied = {[](const Draft& d) { return tensor_core_math(d).has_value(); },
                         [](const Draft& d) {
                           const ir::DType type = d.buffer(d.node().operands[0].buffer).dtype;
                           if (const auto second = other_type(d))
                             return std::string("the operands are ") + ir::name(type) + " and " + ir::name(*second);
                           std::string reason = std::string("it does not multiply ") + ir::name(type) + " on this device";
                           for (const KernelType removed : {KernelType::kFp32, KernelType::kBf16, KernelType::kFp16}) {
                             if (storage_of(removed) != type) continue;
                             const std::string why = d.caps.kernels.why_removed(kernel_row(d.kernel).base, removed);
                             if (!why.empty()) reason += ": " + why;
                           }
                           return reason;
                         }};

std::string TensorCoreTile::name() const {
  const std::string tile = std::to_string(rows) + "x" + std::to_string(columns);
  if (shares_unit() || (images && resident > 1)) return tile + "*" + std::to_string(resident);
  if (turns) return tile + "-turns";
  return warp_rows == 0 ? tile : tile + "/" + std::to_string(warp_rows) + "x" + std::to_string(warp_columns);
}

namespace {

/// Returns the tiles of products, or of these and of convolutions.
std::vector<TensorCoreTile> tiles_of(const TensorCoreMath& math, bool packed, bool images) {
  std::vector<TensorCoreTile> tiles;
  for (const TensorCoreTile& tile : kProductTiles) {
    if (tile.level != math.level || (tile.level == kWarpgroup && tile.packed != packed)) continue;
    if (tile.lanes != 0 && tile.lanes != math.lanes()) continue;
    if (tile.images && !images) continue;
    if ((tile.chunk != 0 && tile.chunk != math.chunk) || (tile.terms != 0 && tile.terms != math.terms)) continue;
    if (math.matrix == MatrixInstructions::kMma8 && tile.rows + tile.columns > kNarrowTile) continue;
    if (tile.shares_unit() && !math.has(KernelForm::k_boxes)) continue;
    if (tile.turns && !math.has(KernelForm::k_turns)) continue;
    if (!is_wide(tile) || math.has(KernelForm::k_wide) || math.chunk == 4) tiles.push_back(tile);
  }
  return tiles;
}

}  // namespace

std::vector<TensorCoreTile> tensor_core_tiles(const TensorCoreMath& math, bool packed) { return tiles_of(math, packed, false); }

std::vector<TensorCoreTile> convolution_tiles(const TensorCoreMath& math, int64_t depth) {
  std::vector<TensorCoreTile> tiles = tiles_of(math, false, true);
  std::erase_if(tiles, [&](const TensorCoreTile& tile) {
    const bool powers = std::has_single_bit<unsigned>(tile.rows) && std::has_single_bit<unsigned>(tile.columns);
    return (!powers && !tile.images) || (tile.shares_unit() && depth > kDeepestShared);
  });
  if (math.matrix == MatrixInstructions::kDpas8 || math.matrix == MatrixInstructions::kDpas16)
    std::erase_if(tiles, [&](const TensorCoreTile& tile) {
      return tile.warp_rows * tile.warp_columns > (math.chunk == 4 ? 16 : 32) * math.lanes();
    });
  return tiles;
}

bool use_boxes(Draft& draft, const TensorCoreMath& math, const TensorCoreTile& tile) {
  if (tile.shares_unit()) {
    define(draft.launch(), "AT_ONCE", tile.resident);
    draft.launch().local = {tile.rows / 64 * 128 + 32, 1, 1};
  } else if (tile.turns) {
    define(draft.launch(), "TURNS", 1);
  } else {
    if (!math.has(KernelForm::k_boxes) || resident_groups(draft.caps, tile) > draft.caps.units) return false;
    const std::vector<std::string> copies = {"boxes", "chunks"};
    if (copies[draft.choices().pick("copies", copies)] != "boxes") return false;
  }
  define(draft.launch(), "BOXES", 1);
  return true;
}

ProductSizes product_sizes(const ir::Node& node) {
  return {typical(node.sizes[1], 512), typical(node.sizes[2], 512), typical(node.reduce_sizes[0], 512),
          typical(node.sizes[0], 8), constants(node.sizes) && constants(node.reduce_sizes)};
}

bool has_slow_epilogue(const Draft& draft) {
  std::set<ir::BufferId> made = {draft.node().outputs[0]};
  for (size_t id = draft.id + 1; id < draft.graph.nodes.size(); ++id) {
    const ir::Node& node = draft.graph.nodes[id];
    if (node.kind != ir::NodeKind::kMap) continue;
    bool reads = false, slow = false;
    for (const ir::Op& op : node.body.ops) {
      reads |= op.code == ir::OpCode::kLoad && op.index.size() > 1 && made.contains(op.buffer);
      slow |= ir::facts(op.code).cost == ir::Cost::k_slow;
    }
    if (reads && slow) return true;
    if (reads)
      for (const ir::Store& store : node.stores) made.insert(store.buffer);
  }
  return false;
}

namespace {

// Fewest elements of the inner dimension in a slice.
constexpr int64_t kMinSliceDepth = 256;

/// True if the tile is for the depth of `problem`.
bool is_for(const TensorCoreTile& tile, const ProductSizes& problem) {
  return !tile.shares_unit() || problem.depth <= kDeepestShared;
}

bool splits_into(const ProductSizes& problem, const TensorCoreTile& tile, int64_t splits, int chunk) {
  if (!is_for(tile, problem)) return false;
  if (splits == 1) return true;
  return problem.fixed && problem.depth % (splits * chunk) == 0 && problem.depth / splits >= kMinSliceDepth;
}

/// Returns the estimated time in seconds: full waves of tiles, then the sum of the slices.
double seconds_of(const Caps& caps, const TensorCoreMath& math, const TensorCoreTile& tile, const ProductSizes& p,
                  int64_t splits) {
  const int64_t step = 8 * math.chunk, steps = (p.depth / splits + step - 1) / step;
  const double cost = tile_cost(caps, tile, p.rows, p.columns, p.batches * splits, tile.at_once()),
               multiplied = cost * 2 * static_cast<double>(steps * step) / math.product,
               stored = cost * tile.rate / math.stored;
  // In turns, nothing is multiplied only while one consumer stores the last tile. But beside more than 128 sums, a work-item
  // has too few registers for a slow epilogue: the other consumer waits.
  const double last = 2.0 * tile.rows * tile.columns / math.stored,
               products = tile.turns && !(p.slow_epilogue && tile.columns > 128) ? std::max(multiplied, stored) + last
                                                                                 : multiplied + stored;
  if (splits == 1) return products;
  const double part = 4.0 * static_cast<double>(p.rows) * static_cast<double>(p.columns) * static_cast<double>(p.batches);
  // With slices, the kernel cannot run the epilogue. So the epilogue costs another pass over the result.
  return products + 2 * static_cast<double>(splits + 1) * part / kMemoryBytesPerSecond + kLaunchSeconds;
}

}  // namespace

std::vector<TilePlan> tile_plans(const Caps& caps, const TensorCoreMath& math, const ProductSizes& problem, bool packed) {
  std::vector<TilePlan> plans;
  for (const TensorCoreTile& tile : tensor_core_tiles(math, packed)) {
    if (!is_for(tile, problem)) continue;
    TilePlan best{tile, 1, seconds_of(caps, math, tile, problem, 1)};
    for (int64_t splits = 2; splits <= 64; ++splits) {
      if (!splits_into(problem, tile, splits, math.chunk)) continue;
      const double seconds = seconds_of(caps, math, tile, problem, splits);
      if (seconds < best.seconds) best = {tile, splits, seconds};
    }
    plans.push_back(best);
  }
  std::stable_sort(plans.begin(), plans.end(), [](const TilePlan& a, const TilePlan& b) { return a.seconds < b.seconds; });
  return plans;
}

TilePlan choose_tile_plan(Draft& draft, const TensorCoreMath& math, const ProductSizes& problem, bool packed) {
  std::vector<std::pair<double, TilePlan>> ranked;
  for (const TilePlan& plan : tile_plans(draft.caps, math, problem, packed)) ranked.emplace_back(plan.seconds, plan);
  TilePlan plan = pick_tile(draft.choices(), std::move(ranked));
  std::vector<int64_t> splits = {plan.splits};
  int64_t more = plan.splits + 1;
  while (more <= 64 && !splits_into(problem, plan.tile, more, math.chunk)) ++more;
  if (plan.splits > 1) splits.push_back(1);
  if (more <= 64) splits.push_back(more);
  if (problem.fixed) plan.splits = draft.choices().pick("splits", splits);
  return plan;
}

TensorCoreTile choose_tensor_core_tile(Draft& draft, const std::vector<TensorCoreTile>& tiles, int64_t rows, int64_t columns,
                                       int64_t others) {
  std::vector<std::pair<double, TensorCoreTile>> ranked;
  for (const TensorCoreTile& tile : tiles)
    ranked.emplace_back(tile_cost(draft.caps, tile, rows, columns, others, tile.at_once()), tile);
  return pick_tile(draft.choices(), std::move(ranked));
}

int64_t resident_groups(const Caps& caps, const TensorCoreTile& tile) { return caps.units * tile.resident; }

IndexExpr persistent_groups(const Caps& caps, const IndexExpr& tiles, const TensorCoreTile& tile, const IndexExpr& others) {
  if (tile.warp_rows != 0) return tiles;
  const int64_t resident = resident_groups(caps, tile);
  if (!tiles.is_const() || !others.is_const()) return ir::min(tiles, ir::max(ir::floordiv(resident, others), 1));
  // If there were more work-groups than are resident, the last ones would wait until others have computed all their
  // tiles.
  const auto waves = [&](int64_t groups) {
    return ((tiles.constant() + groups - 1) / groups) * ((groups * others.constant() + resident - 1) / resident);
  };
  int64_t best = 1;
  for (int64_t groups = 2; groups <= std::min(tiles.constant(), resident); ++groups)
    if (waves(groups) <= waves(best)) best = groups;
  return best;
}

void use_tensor_cores(Draft& draft, const TensorCoreMath& math, const TensorCoreTile& tile, int producers, int store_width) {
  TemplateLaunch& launch = draft.launch();
  launch.variant = tile.name() + " " + math.name;
  define_types(draft, launch, store_width);
  define(launch, {{"TILE_M", tile.rows}, {"TILE_N", tile.columns}});
  launch.stores.width = store_width;
  if (math.matrix != MatrixInstructions::kNone) define(launch, matrix_row(math.matrix).macro, matrix_row(math.matrix).value);
  if (math.level != kMatrix) define(launch, "TERMS", math.terms);
  if (tile.stages > 0) define(launch, "STAGES", math.matrix == MatrixInstructions::kMma8 ? kNarrowStages : tile.stages);
  if (tile.cramped > 0) define(launch, "CRAMPED_STAGES", tile.cramped);
  launch.local = {tile.consumers() * 128 + producers, 1, 1};
  if (math.level == kWarpgroup) return;
  define(launch, math.level == kWarp ? "WARP_M" : "SUB_M", tile.warp_rows);
  define(launch, math.level == kWarp ? "WARP_N" : "SUB_N", tile.warp_columns);
  launch.local = {tile.rows / tile.warp_rows * (tile.columns / tile.warp_columns) * math.lanes(), 1, 1};
}

void share_registers(TemplateLaunch& launch, const TensorCoreTile& tile) {
  if (tile.producer_registers == 0) return;
  define(launch, {{"PRODUCER_REGISTERS", tile.producer_registers}, {"CONSUMER_REGISTERS", tile.consumer_registers}});
}

void use_tensor_core_tile(Draft& draft, const TensorCoreMath& math, const TensorCoreTile& tile, const IndexExpr& columns,
                          int producers) {
  use_tensor_cores(draft, math, tile, producers, multiples(draft, math.chunk, {columns}) ? math.chunk : 2);
  draft.launch().stores.align(true);
}

}  // namespace ocl::schedule
