// csrc/schedule/families/gemm/offer_tensor_core.cpp: offers tensor core kernels for matrix products, with operands in place
// or packed first.
#include "csrc/schedule/families/gemm/matrices.h"
#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {

namespace {

// A part of a product's columns has so many full waves of tiles: to begin another part costs a fraction of a wave. Parts are
// made if packing them one by one takes at least so many bytes less.
constexpr int64_t kWavesOfPart = 16, kLeastSaved = 64 << 20;

/// Returns the columns of each part in which the product should be computed; 0 if as a whole.
int64_t part_columns(const Draft& draft, const TensorCoreTile& tile) {
  const ProductSizes p = product_sizes(draft.node());
  if (!p.fixed || p.batches > 1) return 0;
  const int64_t tiles = kWavesOfPart * resident_groups(draft.caps, tile), down = (p.rows + tile.rows - 1) / tile.rows;
  const int64_t columns = std::max<int64_t>(tiles / down, 1) * tile.columns;
  return (p.columns - columns) * p.depth * 4 >= kLeastSaved ? columns : 0;
}

/// Returns the distance of rows of the result if it is no multiple of `chunk`, otherwise the number of columns: the width of
/// the vectors that are stored divides it.
IndexExpr stored_columns(const Draft& draft, int chunk) {
  const IndexExpr& columns = draft.node().sizes[2];
  const std::optional<ir::Shape>& strides = draft.buffer(draft.node().outputs[0]).strides;
  if (!strides || !(*strides)[2].is_const(1) || multiples(draft, chunk, {(*strides)[1]})) return columns;
  return (*strides)[1];
}

/// Chooses the tile and the number of slices. Returns the tile. Work-groups of warpgroup kernels go on with tiles of the next
/// matrix of a batch.
TensorCoreTile use_plan(Draft& draft, const TensorCoreMath& math, bool packed) {
  ProductSizes sizes = product_sizes(draft.node());
  sizes.slow_epilogue = has_slow_epilogue(draft);
  const TilePlan plan = choose_tile_plan(draft, math, sizes, packed);
  if (plan.splits > 1) split_depth(draft, plan.splits);
  draft.launch().kind = "gemm";
  use_tensor_core_tile(draft, math, plan.tile, stored_columns(draft, math.chunk), packed ? 32 : 128);
  draft.launch().variant += (packed ? " packed" : "") + in_slices(plan.splits);
  const ir::Shape& shape = draft.node().sizes;
  const IndexExpr tiles_of_one = ir::ceildiv(shape[1], plan.tile.rows) * ir::ceildiv(shape[2], plan.tile.columns);
  if (math.level == KernelLevel::k_warpgroup) {
    define(draft.launch(), "BATCHED", !shape[0].is_const(1));
    draft.launch().args({{"batches", shape[0]}});
    draft.launch().groups = {persistent_groups(draft.caps, tiles_of_one * shape[0], plan.tile, 1), 1, 1};
  } else {
    draft.launch().groups = {persistent_groups(draft.caps, tiles_of_one, plan.tile, shape[0]), 1, shape[0]};
  }
  return plan.tile;
}

}  // namespace

void offer_gemm_tensor_core(Draft& draft) {
  TensorCoreMath math = *tensor_core_math(draft);
  const TensorCoreTile tile = use_plan(draft, math, false);
  pass_matrices(draft, math.chunk);
  use_boxes(draft, math, tile);
  share_registers(draft.launch(), tile);
}

void offer_gemm_packed_tensor_core(Draft& draft) {
  TensorCoreMath math = *tensor_core_math(draft);
  if (math.terms == 3) math.name = "split f16";
  draft.offer.part_columns = part_columns(draft, use_plan(draft, math, true));
  const ir::Node& node = draft.node();
  const IndexExpr inner = inner_batch(draft);
  const auto blocks = [&](ProductOperand role) {
    const ir::View& view = node.operands[role == ProductOperand::kA ? 0 : 1];
    return packed_blocks(draft, view, matrices(draft, view, inner), inner, role,
                         math.terms == 3 ? BlockForm::kPairs : BlockForm::kTf32);
  };
  const Blocks a = blocks(ProductOperand::kA), b = blocks(ProductOperand::kB);
  TemplateLaunch& launch = draft.launch();
  define(launch, "PACKED", 1);
  launch.buffers({{"a", a.input}, {"b", b.input}});
  launch.args({{"M", node.sizes[1]}, {"N", node.sizes[2]}, {"K", node.reduce_sizes[0]}});
  launch.args({{"a_batch", a.batch}, {"b_batch", b.batch}});
  store_along(launch, 2, launch.stores.width, 3);
}

}  // namespace ocl::schedule
